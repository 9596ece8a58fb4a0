"""Runs a file of this folder with a small encoder and without servers; prints its `scores`.

python offline.py FILE
"""

import datetime
import functools
import importlib.util
import json
import os
import pathlib
import runpy
import sys
import uuid

import fake_encoders

from condvendi_jax import encoders


class Encoder(fake_encoders.Means):
    bandwidth = 60.0


encoders.load_minilm = Encoder
os.environ |= {"LANGSMITH_TRACING": "false", "LANGFUSE_TRACING_ENABLED": "false"}
os.environ |= {"LANGFUSE_PUBLIC_KEY": "none", "LANGFUSE_SECRET_KEY": "none"}
os.environ |= {"LANGFUSE_BASE_URL": "http://localhost:9", "PYDANTIC_DISABLE_PLUGINS": "1"}
here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))
if sys.argv[1] == "langsmith_run.py" and importlib.util.find_spec("langsmith"):
    import gifts
    import langsmith
    from langsmith import schemas

    class Client(langsmith.Client):
        def list_examples(self, **_):
            made = {"dataset_id": uuid.uuid4(), "created_at": datetime.datetime.now(datetime.UTC)}
            for question in gifts.questions:
                yield schemas.Example(id=uuid.uuid4(), inputs={"question": question}, **made)

    client = Client(api_url="http://localhost:9", api_key="none", auto_batch_tracing=False)
    langsmith.evaluate = functools.partial(langsmith.evaluate, client=client, upload_results=False)
values = runpy.run_path(str(here / sys.argv[1]), run_name="run")
print(json.dumps(values["scores"]))
