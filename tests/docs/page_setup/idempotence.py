"""What the page takes for granted: a payment provider that knows its keys, and the post."""


class Payments:
    def __init__(self) -> None:
        self.charged: dict[str, int] = {}

    def charge(self, amount: int, *, idempotency_key: str) -> int:
        return self.charged.setdefault(idempotency_key, amount)


payments = Payments()
sent: list[str] = []
send_letter = sent.append


def afterwards() -> None:
    assert payments.charged == {"charge-7": 20}
    assert sent == ["ann", "ben", "cem"]
