"""What the shop stores."""

from django.db import models


class Order(models.Model):
    """An order, and how far it has come."""

    customer = models.CharField(max_length=100)
    total = models.DecimalField(max_digits=10, decimal_places=2)
    receipt_sent = models.BooleanField(default=False)
    points = models.IntegerField(default=0)

    def __str__(self) -> str:
        """Return who ordered."""
        return f"order {self.pk} of {self.customer}"
