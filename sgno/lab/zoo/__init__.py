"""Trained steps that come with the package, each with a card that says where it comes from."""

from sgno.lab.zoo.shelf import Card as Card
from sgno.lab.zoo.shelf import cards as cards
from sgno.lab.zoo.shelf import find as find
from sgno.lab.zoo.shelf import load as load
