"""Galleries: who is enrolled, in a folder or in Milvus, and exact search among them."""

from arcwise.gallery.people import Gallery as Gallery
