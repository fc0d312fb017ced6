"""The harness: configuration, classifier, training, evaluation, records and tables."""
