"""A1's apple, 100 of them, on sale: a fresh shop can sell at once."""

from django.db import migrations


def put_on_sale(apps, schema_editor):
    Product = apps.get_model("shop", "Product")
    Sale = apps.get_model("shop", "Sale")
    apple, made = Product.objects.get_or_create(name="apple", defaults={"amount": 100})
    if made:
        apple.sale = Sale.objects.create(product=apple, initial_stock=100)
        apple.save(update_fields=["sale"])


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [migrations.RunPython(put_on_sale, migrations.RunPython.noop)]
