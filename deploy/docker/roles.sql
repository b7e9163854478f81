-- Run once, by PostgreSQL's superuser, when the database is new (/docker-entrypoint-initdb.d).
-- oversold_migrate owns the database and creates its tables. oversold_app is the role of the shop,
-- which owns nothing. `manage.py grant_role oversold_app` grants its privileges after each migration.
\set migrate_password `cat /run/oversold/migrate_password`
\set app_password `cat /run/oversold/app_password`

CREATE ROLE oversold_migrate LOGIN PASSWORD :'migrate_password';
CREATE ROLE oversold_app LOGIN PASSWORD :'app_password';

-- The timeouts of shop/ops/postgres.py. A pooler does not pass on those that the shop sets itself.
ALTER ROLE oversold_app SET idle_in_transaction_session_timeout = 6000;
ALTER ROLE oversold_app SET lock_timeout = 7000;
ALTER ROLE oversold_app SET statement_timeout = 8000;

ALTER DATABASE oversold OWNER TO oversold_migrate;
REVOKE ALL ON DATABASE oversold FROM PUBLIC;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT CONNECT ON DATABASE oversold TO oversold_app;
GRANT USAGE ON SCHEMA public TO oversold_app;
