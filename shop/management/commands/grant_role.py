"""manage.py grant_role: give the shop's PostgreSQL role the privileges that it needs.

The role may sell, restock, and log users in. It may add and read orders, but not change them; it
may close a sale, but not change its initial stock. Users, groups and tables belong to the role that
migrates.
"""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection, transaction

#: Privileges by table. The strategy `reserve` draws order numbers from the sequence, before their
#: orders are written.
GRANTS = {
    "product": "SELECT, INSERT, UPDATE (amount, sale_id, fence, version)",
    "shop_sale": "SELECT, INSERT, UPDATE (closed_at, final_stock)",
    "shop_bucket": "SELECT, INSERT, UPDATE (amount), DELETE",
    # FOR UPDATE needs the privilege UPDATE on some column.
    "shop_unit": "SELECT, INSERT, UPDATE (number), DELETE",
    "purchase_history": "SELECT, INSERT",
    "django_migrations": "SELECT",
    "django_content_type": "SELECT",
    "django_admin_log": "SELECT, INSERT",
    "django_session": "SELECT, INSERT, UPDATE, DELETE",
    "auth_user": "SELECT, UPDATE (password, last_login)",
    "auth_group": "SELECT",
    "auth_permission": "SELECT",
    "auth_user_groups": "SELECT",
    "auth_user_user_permissions": "SELECT",
    "auth_group_permissions": "SELECT",
    "SEQUENCE purchase_history_id_seq": "USAGE",
}

OWNED_TABLES = "SELECT 1 FROM pg_tables WHERE schemaname = 'public' AND tableowner = %s LIMIT 1"


class Command(BaseCommand):
    help = "Give a PostgreSQL role the privileges of the shop. Run it as the tables' owner."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", help="the role in DATABASE_URL, for example oversold_app")

    def handle(self, *args: Any, role: str, **options: Any) -> None:
        try:
            grant(role)
        except (LookupError, DatabaseError) as error:
            raise CommandError(f"nothing was granted to {role}: {error}") from error
        self.stdout.write(self.style.SUCCESS(f"{role} has the privileges of the shop"))


def grant(role: str) -> None:
    """Give `role` exactly the privileges in GRANTS, on the tables and sequences of the shop.

    Raises LookupError if a table is missing from GRANTS, or if `role` owns the tables. Raises
    ProgrammingError if `role` does not exist, or if the current role does not own the tables.
    """
    unknown_tables = sorted(set(connection.introspection.table_names()) - set(GRANTS))
    if unknown_tables:
        raise LookupError(
            f"GRANTS in {__name__} has no entry for {', '.join(unknown_tables)}: add one"
        )
    quoted_role = connection.ops.quote_name(role)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(OWNED_TABLES, [role])
        if cursor.fetchone() is not None:
            raise LookupError(
                "the owner of the shop's tables would lose its privileges: give the role that the "
                "shop's DATABASE_URL names"
            )
        for kind in ("TABLES", "SEQUENCES"):
            cursor.execute(f"REVOKE ALL ON ALL {kind} IN SCHEMA public FROM {quoted_role}")
        for table, privileges in GRANTS.items():
            cursor.execute(f"GRANT {privileges} ON {table} TO {quoted_role}")
