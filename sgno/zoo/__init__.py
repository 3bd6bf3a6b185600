"""Trained steps that come with the package, each with a card that says where it comes from."""

from sgno.zoo.find import find as find
from sgno.zoo.find import load as load
from sgno.zoo.shelf import Card as Card
from sgno.zoo.shelf import cards as cards
