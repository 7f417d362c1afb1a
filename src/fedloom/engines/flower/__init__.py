"""Clients at real sites, reached over Flower."""
