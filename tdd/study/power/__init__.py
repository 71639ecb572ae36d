"""What an audit may expect to find, before it is run: `tdd.expected_power` and `tdd.expected_exchange_power`."""
