"""From turns to token ids and back: template, tool and reasoning parsers of the model's family."""
