"""What the shop's own PostgreSQL role may do: sell, restock, log somebody in; nothing it need not.

Orders are added and read, never changed; a sale is closed, its first stock stays; buckets and units
last as long as their sale. Users, groups and
tables belong to the role that migrates.
"""

from __future__ import annotations

from django.db import connection, transaction

READ = "SELECT"
#: Table -> its privileges.
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
}
#: Sequences that the shop draws from by itself: an order's number before the order is written.
SEQUENCES = {"purchase_history_id_seq": "USAGE"}


def grant(role: str) -> None:
    """Give `role` exactly GRANTS. Raises LookupError for a table that GRANTS says nothing of, and
    ProgrammingError where the role does not exist or the tables are not ours to give."""
    if unknown := sorted(set(connection.introspection.table_names()) - set(GRANTS)):
        raise LookupError(
            f"say in shop/ops/db_role.py what the shop may do with: {', '.join(unknown)}"
        )
    name = connection.ops.quote_name(role)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {name}")
        for table, privileges in GRANTS.items():
            cursor.execute(f"GRANT {privileges} ON {table} TO {name}")
        cursor.execute(f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {name}")
        for sequence, privileges in SEQUENCES.items():
            cursor.execute(f"GRANT {privileges} ON SEQUENCE {sequence} TO {name}")
