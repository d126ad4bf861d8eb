"""The `everview` source of Spark and Sail: tables, their changes, and views."""
