"""Our side of AWS: the provider's connections, and the two tables as the contract has them."""
