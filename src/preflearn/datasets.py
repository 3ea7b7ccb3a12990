"""Small data that comes with the library, made by seeded functions: nothing to download, nothing to license."""

from .tables.shop import DemoData, load_demo

__all__ = ["DemoData", "load_demo"]
