"""Open a sale of 100 apples, as in article A1, so that a new shop can sell without a restock."""

from django.db import migrations


def put_on_sale(apps, schema_editor):
    Product = apps.get_model("shop", "Product")
    Sale = apps.get_model("shop", "Sale")
    apple, is_new = Product.objects.get_or_create(name="apple", defaults={"amount": 100})
    if is_new:
        apple.sale = Sale.objects.create(product=apple, initial_stock=100)
        apple.save(update_fields=["sale"])


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(put_on_sale, migrations.RunPython.noop)]
