/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CGP_CAPI_CGP_LLM_H
#define CGP_CAPI_CGP_LLM_H
/* A part of cgp.h: model files, and language models that run. */
#include "cgp/capi/cgp_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- GGUF files, mapped and not read. Tensors and strings are valid until the file is freed. */
typedef struct cgp_gguf cgp_gguf;
typedef struct {
  size_t size;
  const char* name;
  uint64_t name_length;
  char format[16]; /* for the functions above; GGML's own name where they have none ("I32") */
  int32_t rank;
  uint64_t shape[4]; /* of rows: the last varies fastest */
  const void* data;
  uint64_t bytes;
} cgp_gguf_tensor;
CGP_API cgp_status cgp_gguf_open(const char* path, cgp_gguf** out);
CGP_API void cgp_gguf_free(cgp_gguf* file);
CGP_API cgp_status cgp_gguf_count(cgp_gguf* file, uint64_t* tensors);
CGP_API cgp_status cgp_gguf_at(cgp_gguf* file, uint64_t index, cgp_gguf_tensor* out);
/* An error names the closest names. */
CGP_API cgp_status cgp_gguf_find(cgp_gguf* file, const char* name, cgp_gguf_tensor* out);

/* ---- language models: a GGUF file and what runs it. Requests that are submitted run together, a step of all of them with each
 * cgp_llm_step(). Pointers that a function returns are valid until the next call with the same model. */
typedef struct cgp_llm cgp_llm;
typedef struct {
  size_t size;
  const char* device;    /* "cpu", also NULL; or as cgp_device_open takes it */
  int64_t context;       /* tokens of a sequence, at most; 0: those of the model, at most 8192 */
  int64_t sequences;     /* for which the cache has pages; 0: 1 */
  int64_t chunk;         /* tokens of a step, at most; 0: 512 */
  int64_t lookup_tokens; /* that prompt lookup tries at once; results do not change */
  int32_t threads;       /* of the processor; 0: all */
  int32_t cache_dtype;   /* CGP_F16, CGP_BF16 or CGP_F32; 0: CGP_F16 */
  int32_t activations; /* of products: 0: the fastest within 16 bits; or 32 (f32), 16 or 8 (integers) bits */
  int32_t batch_invariant; /* the same bits whatever else is in the step, for every format */
  const char*
      draft; /* a smaller model of the same vocabulary, which writes tokens ahead; results do not change. NULL: none */
  int64_t draft_tokens; /* that it writes at once, at most; 0: 4 */
  int32_t
      tensor_parallel; /* GPUs that share the model, from `device` on; 0: 1, or as many as `device` lists ("cuda:0,cuda:1") */
} cgp_llm_options;
CGP_API cgp_status cgp_llm_load(const char* path, const cgp_llm_options* options, cgp_llm** out);
CGP_API void cgp_llm_free(cgp_llm* llm);
typedef struct {
  size_t size;
  const char *architecture, *name,
      *backend; /* "llama", "SmolLM2 135M", "cpu (8 threads, int16 activations)" */
  int64_t context, vocabulary;
  uint64_t memory_bytes; /* of weights, cache and values */
  int32_t has_chat_template;
} cgp_llm_info;
CGP_API cgp_status cgp_llm_get_info(cgp_llm* llm, cgp_llm_info* out);
/* With the tokens that the model wants before and after. parse_special: "<|im_end|>" in the text is that token. */
CGP_API cgp_status cgp_llm_encode(cgp_llm* llm, const char* text, uint64_t bytes, int32_t parse_special,
                                  const int32_t** ids, uint64_t* count);
CGP_API cgp_status cgp_llm_decode(cgp_llm* llm, const int32_t* ids, uint64_t count, int32_t skip_special,
                                  const char** text, uint64_t* bytes);
/* A conversation through the model's chat template, ready for the assistant's answer. */
CGP_API cgp_status cgp_llm_chat_prompt(cgp_llm* llm, const char* const* roles, const char* const* contents,
                                       uint64_t messages, const int32_t** ids, uint64_t* count);
typedef struct {
  size_t size;
  int64_t max_tokens;        /* 0: 256 */
  double temperature;        /* 0: the greatest logit */
  int32_t top_k;             /* 0: all */
  double top_p;              /* 0 or 1: all */
  double min_p;              /* of the greatest probability; 0: all */
  double typical_p;          /* 0 or 1: all */
  double repetition_penalty; /* 0 or 1: none */
  double frequency_penalty, presence_penalty;
  int32_t penalty_window; /* how many of the last tokens count as seen; -1: all, 0: none */
  uint64_t seed;
  int32_t logprobs;     /* each token has its log probability */
  int32_t top_logprobs; /* and those of so many alternatives */
  int32_t ignore_end;   /* goes on behind tokens that end generation */
  const char* const* stops;
  uint64_t stop_count;
  const int32_t* bias_ids; /* added to logits before all else */
  const float* bias;
  uint64_t bias_count;
} cgp_llm_request;
/* request NULL: temperature 0.7, top_k 40, top_p 0.9, seed 42. *id: positive. */
CGP_API cgp_status cgp_llm_submit(cgp_llm* llm, const int32_t* prompt, uint64_t count,
                                  const cgp_llm_request* request, int64_t* id);
/* *busy: whether there was something to do. */
CGP_API cgp_status cgp_llm_step(cgp_llm* llm, int32_t* busy);
CGP_API cgp_status cgp_llm_cancel(cgp_llm* llm, int64_t id);
/* Text that came since the last call for this request: UTF-8, no part of a stop string. */
CGP_API cgp_status cgp_llm_text(cgp_llm* llm, int64_t id, const char** text, uint64_t* bytes);
typedef struct {
  int32_t token;
  double logprob; /* natural */
} cgp_llm_logprob;
typedef struct {
  size_t size;
  const int32_t* ids; /* that were generated, with the token that ended generation */
  uint64_t count;
  const char* text;
  uint64_t text_bytes;
  const char*
      finish_reason; /* "stop", "length", "cancelled", "error"; NULL: it is still at work, and nothing else is set */
  const char *stop, *error;                /* the stop string; what went wrong */
  int64_t prompt_tokens, reused_tokens;    /* of the prompt; those that the cache had */
  int64_t drafted_tokens, accepted_tokens; /* of prompt lookup and of the draft model */
  double prefill_seconds, decode_seconds;
  const cgp_llm_logprob*
      logprobs; /* [count][1 + top_logprobs]: the token, then the most likely ones, token -1 behind the last */
  uint64_t logprob_columns; /* 1 + top_logprobs; 0: none were asked for */
} cgp_llm_completion;
/* A request that has ended is given once. */
CGP_API cgp_status cgp_llm_take(cgp_llm* llm, int64_t id, cgp_llm_completion* out);
/* exp of the mean negative log probability of the text in chunks, of which the second half is predicted; no request may be at
 * work. */
CGP_API cgp_status cgp_llm_perplexity(cgp_llm* llm, const char* text, uint64_t bytes, int64_t chunk,
                                      double* value, double* error);

#ifdef __cplusplus
}
#endif
#endif
