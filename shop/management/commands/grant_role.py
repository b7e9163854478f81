"""manage.py grant_role: give the shop's PostgreSQL role what it needs, and no more.

It may sell, restock and log somebody in. Orders are added and read, never changed; a sale is
closed, its first stock stays; buckets and units last as long as their sale. Users, groups and
tables belong to the role that migrates.
"""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection, transaction

READ = "SELECT"
#: Table -> its privileges. From the sequence an order's number is drawn before it is written.
GRANTS = {
    "product": "SELECT, INSERT, UPDATE (amount, sale_id, fence, version)",
    "shop_sale": "SELECT, INSERT, UPDATE (closed_at, final_stock)",
    "shop_bucket": "SELECT, INSERT, UPDATE (amount), DELETE",
    # FOR UPDATE asks for UPDATE of some column.
    "shop_unit": "SELECT, INSERT, UPDATE (number), DELETE",
    "purchase_history": "SELECT, INSERT",
    "django_migrations": READ,
    "django_content_type": READ,
    "django_admin_log": "SELECT, INSERT",
    "django_session": "SELECT, INSERT, UPDATE, DELETE",
    "auth_user": "SELECT, UPDATE (password, last_login)",
    "auth_group": READ,
    "auth_permission": READ,
    "auth_user_groups": READ,
    "auth_user_user_permissions": READ,
    "auth_group_permissions": READ,
    "SEQUENCE purchase_history_id_seq": "USAGE",
}


class Command(BaseCommand):
    help = "Give a PostgreSQL role the privileges of the shop. Run it as the tables' owner."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", help="the role of DATABASE_URL, as oversold_app")

    def handle(self, *args: Any, role: str, **options: Any) -> None:
        try:
            grant(role)
        except (LookupError, DatabaseError) as error:
            raise CommandError(f"nothing was granted to {role}: {error}") from error
        self.stdout.write(self.style.SUCCESS(f"{role} may sell, and owns nothing"))


def grant(role: str) -> None:
    """Give `role` exactly GRANTS. Raises LookupError for a table that GRANTS says nothing of, and
    ProgrammingError where the role does not exist or the tables are not ours to give."""
    if unknown := sorted(set(connection.introspection.table_names()) - set(GRANTS)):
        raise LookupError(f"say in {__name__} what the shop may do with: {', '.join(unknown)}")
    name = connection.ops.quote_name(role)
    with transaction.atomic(), connection.cursor() as cursor:
        for kind in ("TABLES", "SEQUENCES"):
            cursor.execute(f"REVOKE ALL ON ALL {kind} IN SCHEMA public FROM {name}")
        for what, privileges in GRANTS.items():
            cursor.execute(f"GRANT {privileges} ON {what} TO {name}")
