# gifts.py
import itertools

texts = {"cook": ["pan", "oil"], "child": ["ball", "kite", "bike"], "runner": ["shoe", "sock"]}
texts |= {"guest": ["wine", "cake"], "boss": ["pen"], "friend": ["mug", "book", "lamp", "tea"]}
answers = {f"Suggest a gift for a {person}.": itertools.cycle(texts[person]) for person in texts}
questions = list(answers)


def ask(question):  # In place of your model.
    return next(answers[question])
