"""What every package needs: checks, files, devices, memory and tables."""
