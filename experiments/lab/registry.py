"""The studies, by name. A study belongs to the project once it is here."""

import importlib

from experiments.lab import Study

_MODULES = {
    "convergence": "experiments.conditional_vendi.convergence:Convergence",
    "gmm_search": "experiments.conditional_vendi.gmm_search:GmmSearch",
    "gmm_toy": "experiments.conditional_vendi.gmm_toy:GmmToy",
    "type_ablation": "experiments.conditional_vendi.type_ablation:TypeAblation",
    "prompt_clusters": "experiments.conditional_vendi.prompt_clusters:PromptClusters",
    "prompt_modes": "experiments.conditional_vendi.prompt_modes:PromptModes",
    "text_to_image": "experiments.conditional_vendi.text_to_image:TextToImage",
    "substitution": "experiments.conditional_vendi.substitution:Substitution",
    "bandwidth": "experiments.conditional_vendi.bandwidth:Bandwidth",
    "designs": "experiments.calibration.designs:Designs",
    "bandwidth_rules": "experiments.calibration.bandwidth_rules:BandwidthRules",
    "captioning": "experiments.conditional_vendi.captioning:Captioning",
    "captions_judged": "experiments.calibration.captions_judged:CaptionsJudged",
    "video": "experiments.conditional_vendi.video:Video",
    "language": "experiments.language_models.language:Language",
    "same_answers": "experiments.language_models.same_answers:SameAnswers",
    "answers": "experiments.language_models.answers:Answers",
    "hivemind": "experiments.language_models.hivemind:Hivemind",
    "post_training": "experiments.language_models.post_training:PostTraining",
    "temperature": "experiments.conditional_vendi.temperature:Temperature",
    "latent_truncation": "experiments.rke.latent_truncation:LatentTruncation",
    "gmm_gan": "experiments.rke.gmm_gan:GmmGan",
    "collapse": "experiments.rke.collapse:Collapse",
    "guided_mixture": "experiments.guidance.guided_mixture:GuidedMixture",
    "guided_diffusion": "experiments.guidance.guided_diffusion:GuidedDiffusion",
    "guidance_cost": "experiments.cost.guidance_cost:GuidanceCost",
    "human": "experiments.calibration.human:Human",
    "coverage": "experiments.rke.coverage:Coverage",
    "scaling": "experiments.cost.scaling.study:Scaling",
    "many_devices": "experiments.cost.many_devices:ManyDevices",
    "many_processes": "experiments.cost.many_processes:ManyProcesses",
    "theorems": "experiments.conditional_vendi.theorems:Theorems",
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
