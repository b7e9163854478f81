from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('shop', '0003_buckets_and_units'),
    ]

    operations = [
        migrations.AddConstraint(
            model_name='sale',
            constraint=models.CheckConstraint(condition=models.Q(('final_stock__gte', 0)), name='sale_final_stock_not_negative'),
        ),
    ]
