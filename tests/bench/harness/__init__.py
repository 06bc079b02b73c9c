"""What every section needs: contenders, loads, accounts of CPU and memory, and the report."""
