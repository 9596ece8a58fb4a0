"""The studies, by name. A study belongs to the project once it is here."""

from __future__ import annotations

import importlib

from experiments.lab import Study

_MODULES = {
    "convergence": "experiments.convergence:Convergence",
    "gmm_search": "experiments.gmm_search:GmmSearch",
    "gmm_toy": "experiments.gmm_toy:GmmToy",
    "type_ablation": "experiments.type_ablation:TypeAblation",
    "prompt_clusters": "experiments.prompt_clusters:PromptClusters",
    "prompt_modes": "experiments.prompt_modes:PromptModes",
    "text_to_image": "experiments.text_to_image:TextToImage",
    "substitution": "experiments.substitution:Substitution",
    "bandwidth": "experiments.bandwidth:Bandwidth",
    "designs": "experiments.designs:Designs",
    "bandwidth_rules": "experiments.bandwidth_rules:BandwidthRules",
    "captioning": "experiments.captioning:Captioning",
    "video": "experiments.video:Video",
    "language": "experiments.language:Language",
    "same_answers": "experiments.same_answers:SameAnswers",
    "answers": "experiments.answers:Answers",
    "hivemind": "experiments.hivemind:Hivemind",
    "post_training": "experiments.post_training:PostTraining",
    "temperature": "experiments.temperature:Temperature",
    "sketch_temperature": "experiments.sketch_temperature:SketchTemperature",
    "latent_truncation": "experiments.latent_truncation:LatentTruncation",
    "gmm_gan": "experiments.gmm_gan:GmmGan",
    "guided_mixture": "experiments.guided_mixture:GuidedMixture",
    "guided_diffusion": "experiments.guided_diffusion:GuidedDiffusion",
    "guidance_cost": "experiments.guidance_cost:GuidanceCost",
    "human": "experiments.human:Human",
    "coverage": "experiments.coverage:Coverage",
    "scaling": "experiments.scaling.study:Scaling",
    "many_devices": "experiments.many_devices:ManyDevices",
    "many_processes": "experiments.many_processes:ManyProcesses",
    "theorems": "experiments.theorems:Theorems",
}
NAMES = tuple(_MODULES)


def load(name: str) -> type[Study]:
    """The study of that name.

    Raises:
      ValueError: there is none, with the names of those that there are.
    """
    if name not in _MODULES:
        raise ValueError(f"unknown study {name!r}; the studies are {', '.join(NAMES)}.")
    module, _, study = _MODULES[name].partition(":")
    return getattr(importlib.import_module(module), study)
