-- Run once, by PostgreSQL's superuser, when the database is new (/docker-entrypoint-initdb.d).
-- oversold_migrate owns the database and makes its tables. oversold_app is the shop: it owns nothing;
-- `manage.py grant_role oversold_app` gives it what a sale needs, after each migration.
\set migrate_password `cat /run/oversold/migrate_password`
\set app_password `cat /run/oversold/app_password`

CREATE ROLE oversold_migrate LOGIN PASSWORD :'migrate_password';
CREATE ROLE oversold_app LOGIN PASSWORD :'app_password';

-- The shop's own timeouts, also where a pooler drops what the shop asks for (shop/ops/postgres.py).
ALTER ROLE oversold_app SET idle_in_transaction_session_timeout = 6000;
ALTER ROLE oversold_app SET lock_timeout = 7000;
ALTER ROLE oversold_app SET statement_timeout = 8000;

ALTER DATABASE oversold OWNER TO oversold_migrate;
REVOKE ALL ON DATABASE oversold FROM PUBLIC;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT CONNECT ON DATABASE oversold TO oversold_app;
GRANT USAGE ON SCHEMA public TO oversold_app;
