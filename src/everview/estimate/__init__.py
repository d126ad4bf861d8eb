"""What views cost: samples of tables, and the cost model over them."""
