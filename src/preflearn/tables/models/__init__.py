"""Models on disk and for other programs: model files, ONNX, search engines."""
