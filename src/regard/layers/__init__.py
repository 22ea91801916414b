"""The mathematics that models share."""
