"""Models as ONNX files: written with torch, run without it, and checked against each other."""
