// SPDX-License-Identifier: Apache-2.0
// The command line: declares commands and options, fills commands.h's structs, turns exceptions into messages
// and exit codes.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/model/summary/summary.h"
#include "cgp/spec/validators.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/completion.h"
#include "tools/cgp/exit_codes.h"
#include "tools/cgp/model/model_commands.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/routes.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using text::cat;

struct CommandLine {
  bool json = false;
  std::string color = "auto";
  ListOptions list;
  EmitOptions emit;
  WebOptions web;
  PipelineOptions pipeline;
  RunOptions run;
  ExplainOptions explain;
  DoctorOptions doctor;
  BenchOptions bench;
  PlanOptions plan;
  TuneOptions tune;
  TokenizeOptions tokenize;
  GenerateOptions generate, chat;
  PerplexityOptions perplexity;
  ServeCommandOptions serve;
  QuantizeCommandOptions quantize;
  ProfilerOptions profiler;
};

void declare_common(CLI::App& app, CommandLine& c) {
  app.add_flag("--json", c.json, "Print one JSON object on standard output (docs/cli.md lists its fields)");
  app.add_option("--color", c.color, "auto, always or never; auto respects NO_COLOR and CLICOLOR_FORCE")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
}

void declare_list(CLI::App& app, CommandLine& c) {
  app.add_option("KERNEL", c.list.kernel, "Show one kernel: options, inputs, variants per target");
  app.footer("Examples:\n  cgp list\n  cgp list gemm\n  cgp list --json | jq -r '.kernels[].name'");
}

/// Which modules of the catalogue: what emit and pipeline have in common.
template <class Options>
void declare_selection(CLI::App& app, Options& o) {
  app.add_option("KERNEL", o.kernel, "A kernel that `cgp list` names")->required();
  app.add_option("SETTINGS", o.settings, "Options of the kernel as NAME=VALUE");
  app.add_option("--arch", o.arch, "Target: sm_75 sm_80 sm_86 sm_89 sm_90a sm_100a sm_120a")
      ->capture_default_str();
  app.add_option("--variant", o.variant, "This variant instead of the one chosen for the options");
}

void declare_pipeline(CLI::App& app, CommandLine& c) {
  declare_selection(app, c.pipeline);
  app.add_option("--passes", c.pipeline.passes, "Optimise: all, or a list of passes (docs/passes.md)");
  app.add_option(
         "--show", c.pipeline.show,
         "The text of one stage instead of the summary: recorded (blocks and where they lead), ptx, sass")
      ->check(CLI::IsMember({"recorded", "ptx", "sass"}));
  app.footer(
      "Examples:\n  cgp pipeline gemm m=512 n=512 k=512\n  cgp pipeline softmax --passes all --show sass");
}

void declare_emit(CLI::App& app, CommandLine& c) {
  declare_selection(app, c.emit);
  app.add_option("-o,--output", c.emit.output, "Write to this file instead of standard output")
      ->check(writable());
  app.add_option("--passes", c.emit.passes,
                 "Optimise: all, or a list of passes (docs/passes.md); what they did goes to standard error");
  app.add_option("--target", c.emit.target,
                 "ptx, wgsl (WebGPU) or spirv (Vulkan 1.2, a binary file); the latter two of what "
                 "docs/shader.md lists")
      ->check(CLI::IsMember({"ptx", "wgsl", "spirv"}))
      ->capture_default_str();
  app.footer(
      "Examples:\n  cgp emit gemm --arch sm_90a m=4096 n=4096 k=4096\n  cgp emit vecadd -o vecadd.ptx && "
      "ptxas -arch=sm_90a vecadd.ptx\n  cgp emit softmax --arch sm_80 --target wgsl dtype=f32");
}

void declare_web(CLI::App& app, CommandLine& c) {
  app.add_option("DIR", c.web.folder, "Where index.html goes; made if it is not there")->required();
  app.add_option("--kernel", c.web.problems,
                 "\"KERNEL NAME=VALUE ...\"; repeat it. One of each kind without it");
  auto* const model =
      app.add_option("--model", c.web.model, "A GGUF file: a page that generates text with it");
  model->excludes("--kernel");
  app.add_option("--prompt", c.web.prompt,
                 "What the page continues to compare its tokens with the processor's")
      ->needs(model)
      ->capture_default_str();
  app.add_option("--context", c.web.context, "Tokens, at most; 0: those of the model, at most 1024")
      ->check(CLI::NonNegativeNumber)
      ->needs(model);
  app.footer(
      "Examples:\n  cgp web site\n  cgp web site --model model.gguf\n"
      "  cgp web site --kernel \"softmax dtype=f32 rows=64 cols=1000\" --kernel \"gemm dtype=f32 m=256 n=256 "
      "k=256\"");
}

void declare_run(CLI::App& app, CommandLine& c) {
  RunOptions& r = c.run;
  app.add_option("TARGET", r.target, "A kernel that `cgp list` names, or FILE.ptx");
  app.add_option("SETTINGS", r.settings, "Kernels: options as NAME=VALUE");
  app.add_option("--device", r.device,
                 "emu, emu:sm_90a, cuda, cuda:0 or auto. Plain emu takes the PTX file's target")
      ->capture_default_str();
  app.add_option(
         "--check", r.checks,
         "What the emulator checks: all, none, or a list of bounds, alignment, uninit, race, async, barrier, "
         "sync_mask, deadlock, lifetime, program; -NAME takes one away (all,-uninit). strict: all, and "
         "warnings fail")
      ->capture_default_str();
  spec::Emulation& e = r.emulation;
  const auto emulator = "Emulator";
  app.add_option(
         "--async", e.policy.async,
         "When asynchronous operations take effect: eager, late (only when a wait forces it), random[:SEED]")
      ->capture_default_str()
      ->group(emulator);
  app.add_option("--schedule", e.policy.schedule,
                 "Who runs: fair, diverge, adversarial[:SEED], random[:SEED]")
      ->capture_default_str()
      ->group(emulator);
  app.add_option(
         "--policies", e.policies,
         "Run under several and compare the results: all, or ASYNC+SCHEDULE pairs (late+fair,random:3)")
      ->group(emulator);
  app.add_option("--numerics", e.numerics, "Matrix instructions: exact (as the tensor core) or fast")
      ->capture_default_str()
      ->group(emulator);
  app.add_option("--max-findings", e.max_findings, "Findings kept: distinct pairs of class and instruction")
      ->group(emulator);
  app.add_option("--step-limit", e.step_limit, "Instructions of one warp, after which it counts as hung")
      ->group(emulator);
  const auto views = "Views";
  app.add_flag("--annotate{cpp}", r.annotate,
               "Counters per line: --annotate=cpp (where sources can be read), =ptx, =both")
      ->group(views);
  app.add_option("--heatmap", r.heatmap, "FILE.svg: where memory was accessed; - for the summary alone")
      ->group(views);
  app.add_option("--sarif", r.sarif, "FILE: findings as SARIF 2.1.0")->check(writable())->group(views);
  app.add_option("--source", r.source_folders, "A folder in which C++ sources of .loc lines are looked up")
      ->allow_extra_args(false)
      ->group(views);
  app.add_option("--passes", r.passes, "Optimise the PTX first: all, or a list of passes (docs/passes.md)");
  const auto kernel = "Kernels";
  app.add_option("--in", r.inputs, "NAME=FILE.npy: an input; inputs that are not given are random")
      ->allow_extra_args(false)
      ->group(kernel);
  app.add_option("--out", r.outputs, "NAME=FILE.npy: save an output")->allow_extra_args(false)->group(kernel);
  app.add_option("--seed", e.seed, "Seed of random inputs, and of random policies that name none")
      ->capture_default_str();
  app.add_option("--repeat", r.repeat, "Timed launches on a GPU")->capture_default_str()->group(kernel);
  const auto file = "PTX files";
  app.add_option("--entry", r.entry, "The kernel in the file; not needed if there is only one")->group(file);
  app.add_option("--grid", r.grid, "Blocks: X, X,Y or X,Y,Z")->group(file);
  app.add_option("--block", r.block, "Threads: X, X,Y or X,Y,Z; not needed if the kernel says it (.reqntid)")
      ->group(file);
  app.add_option("--cluster", r.cluster,
                 "Blocks per cluster: X, X,Y or X,Y,Z; by default what the kernel says")
      ->group(file);
  app.add_flag("--cooperative", r.cooperative, "All blocks are resident at once and may wait for each other")
      ->group(file);
  app.add_option("--smem", r.dynamic_smem, "Dynamic shared memory in bytes")
      ->capture_default_str()
      ->group(file);
  app.add_option("--arg", r.args,
                 "One kernel parameter, in order; repeat it. Forms:\n"
                 "  in:f32:x.npy          buffer from a file (.npy, else raw)\n"
                 "  in:f32:1024:INIT      buffer from a generator: zero, '{\"iota\":[0,1]}', ...\n"
                 "  inout:f32:x.npy=y.npy the result goes to y.npy (without =: back to x.npy)\n"
                 "  out:f32:1024=y.npy    buffer to write, saved to y.npy\n"
                 "  scratch:u8:4096       uninitialised buffer\n"
                 "  buf:0+256             256 bytes into the buffer of argument 0\n"
                 "  u32:7 f32:0x3f800000  scalar: value or bits\n"
                 "  '{\"struct\":{...}}' '{\"tensormap\":{...}}'  as in a launch spec")
      ->allow_extra_args(false)
      ->group(file);
  const auto spec = "Launch specs";
  app.add_option("--spec", r.spec, "A JSON file with buffers, launches and what must come out")->group(spec);
  app.add_option("--ptx", r.ptx, "Its PTX; by default the .ptx beside the JSON")->group(spec);
  app.footer(
      "Exit code 1 means that a check failed: a finding, a wrong result, a wrong counter.\n\nExamples:\n"
      "  cgp run gemm m=512 n=512 k=512 --device emu\n"
      "  cgp run softmax --in x=x.npy --out y=y.npy\n"
      "  cgp run saxpy.ptx --entry saxpy --grid 4 --block 256 --arg f32:2.5 --arg in:f32:x.npy \\\n"
      "      --arg inout:f32:y.npy=z.npy --arg u32:1000\n"
      "  cgp run --spec case.json --json\n"
      "  cgp run --spec case.json --policies all --sarif findings.sarif\n"
      "  cgp run gemm m=128 n=128 k=128 --annotate=cpp --heatmap gemm.svg");
}

void declare_explain(CLI::App& app, CommandLine& c) {
  app.add_option(
      "TARGET", c.explain.target,
      "A kernel that `cgp list` names, FILE.ptx, FILE.cubin, a class of findings; a program with --x86");
  app.add_option("--finding", c.explain.finding, "A class of findings: its rule, an example, what to write");
  app.add_option("SETTINGS", c.explain.settings, "Kernels: options as NAME=VALUE");
  app.add_option("--entry", c.explain.entry, "Only this entry of a PTX file");
  app.add_option("--block", c.explain.block,
                 "Threads of a block, X or X,Y or X,Y,Z, when the kernel does not fix it");
  app.add_option("--grid", c.explain.grid, "Blocks, X or X,Y or X,Y,Z, when they are known");
  app.add_option("--param", c.explain.parameters, "NAME=VALUE: an integer parameter of the kernel; repeat it")
      ->allow_extra_args(false);
  app.add_option("--alignment", c.explain.alignment, "Pointer parameters are multiples of so many bytes")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--allow", c.explain.allow, "Classes of bugs that are not reported: ANA-B09,shared.race")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--fail-on", c.explain.fail_on, "Exit with 1 when a bug of this severity or worse is found")
      ->check(CLI::IsMember({"P0", "P1", "P2", "none"}))
      ->capture_default_str();
  app.add_option("--profile", c.explain.profile,
                 "A profile of the kernel on the emulator, or a report of ncu: what was predicted of each "
                 "access beside what was counted");
  app.add_flag("--all", c.explain.all,
               "Every memory access, not groups of them; every function of a program");
  app.add_flag("--x86", c.explain.x86,
               "Vector instructions of a program for the processor, by function (needs objdump)");
  app.add_option("--function", c.explain.function, "With --x86: only this function");
  app.add_option("--as", c.explain.language, "What it becomes as a shader: wgsl, spirv")
      ->check(CLI::IsMember({"wgsl", "spirv"}));
  app.add_option("--arch", c.explain.arch, "Kernels: the target to explain")->capture_default_str();
  app.add_option("--variant", c.explain.variant, "Kernels: this variant");
  app.footer(
      "Examples:\n  cgp explain gemm --arch sm_80\n  cgp explain saxpy.ptx --block 256 --fail-on P0\n  cgp "
      "explain "
      "--finding race.shared\n  cgp explain ANA-B05");
}

void declare_inspect(CLI::App& app, CommandLine& c) {
  declare_pipeline(app, c);
  app.get_option("KERNEL")->description(
      "FILE.gguf, FILE.safetensors or its index, a Hugging Face folder; or a kernel that `cgp list` names");
  app.footer(
      "Examples:\n  cgp inspect model.gguf\n  cgp inspect model.gguf --json | jq .parameters\n"
      "  cgp inspect model.safetensors.index.json\n  cgp inspect softmax");
}

void declare_tokenize(CLI::App& app, CommandLine& c) {
  TokenizeOptions& o = c.tokenize;
  app.add_option("FILE", o.model, "A GGUF with a vocabulary, or a Hugging Face folder")->required();
  app.add_option_function<std::string>(
      "--text",
      [&o](const std::string& text) {
        o.text = text;
        o.text_given = true;
      },
      "The text");
  app.add_option("--file", o.file, "A file with the text; - is standard input");
  app.add_option("--ids", o.ids, "Ids to turn into text, with commas")->delimiter(',');
  app.add_flag("!--no-special", o.add_special,
               "Without the tokens that the model wants before and after the text");
  app.add_flag("--parse-special", o.parse_special, "<|im_end|> and its like in the text are tokens");
  app.footer(
      "Examples:\n  cgp tokenize model.gguf --text 'Hello world'\n  cgp tokenize model.gguf --file README.md "
      "--json\n"
      "  cgp tokenize model.gguf --ids 9906,1917");
}

void declare_model(CLI::App& app, ModelOptions& o) {
  app.add_option("FILE", o.model, "A GGUF with weights and a vocabulary, or a Hugging Face folder")
      ->required();
  app.add_option("--context", o.context, "Tokens of a sequence, at most; 0: those of the model, at most 8192")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--chunk", o.chunk, "Tokens of the prompt in one step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--device", o.device,
                 "What runs it: cpu, cuda:0, vulkan:0, wgpu:0, or emu:sm_90a, the emulator")
      ->capture_default_str();
  app.add_option("--tensor-parallel", o.tensor_parallel,
                 "GPUs that share the model, from --device on; or list them: --device cuda:0,cuda:1")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "At most; 0: all processors")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--activations", o.activations, "f32, int16, int8; auto is int16")
      ->check(CLI::IsMember({"auto", "f32", "int16", "int8"}))
      ->capture_default_str();
  app.add_flag("--batch-invariant", o.batch_invariant,
               "A token's bits do not depend on --chunk, whatever the weights' format");
  app.add_option("--cache", o.cache, "Keys and values: f32, f16, bf16; on a GPU f16, e4m3")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "e4m3"}))
      ->capture_default_str();
}

void declare_sampling(CLI::App& app, GenerateOptions& o) {
  app.add_option("--max-tokens,-n", o.max_tokens, "Tokens to generate, at most")->capture_default_str();
  app.add_option("--temperature,-t", o.sampling.temperature, "0: the likeliest token")->capture_default_str();
  app.add_option("--top-k", o.sampling.top_k, "The k likeliest; 0: all")->capture_default_str();
  app.add_option("--top-p", o.sampling.top_p, "The likeliest up to this mass")->capture_default_str();
  app.add_option("--min-p", o.sampling.min_p, "Those of this times the greatest probability")
      ->capture_default_str();
  app.add_option("--repetition-penalty", o.sampling.repetition_penalty,
                 "Divides the logits of the last 64 tokens")
      ->capture_default_str();
  app.add_option("--seed", o.sampling.seed, "The same seed draws the same tokens")->capture_default_str();
  app.add_option("--lookup", o.model.lookup,
                 "Prompt lookup: tokens that are tried at once where the text repeats; 0: off")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--draft", o.model.draft, "A smaller model of the same vocabulary: the same text, sooner");
  app.add_option("--draft-tokens", o.model.draft_tokens, "That it writes at once, at most")
      ->check(CLI::PositiveNumber);
}

void declare_generate(CLI::App& app, CommandLine& c) {
  GenerateOptions& o = c.generate;
  declare_model(app, o.model);
  app.add_option("--prompt,-p", o.prompt, "The text to continue; @FILE: its content")->required();
  app.add_flag("--parse-special", o.parse_special, "<|im_end|> and its like in the prompt are tokens");
  declare_sampling(app, o);
  app.add_option("--stop", o.stops, "End before this text; may come again");
  CLI::Option* const ignore_end =
      app.add_flag("--ignore-end", o.ignore_end, "Go on behind tokens that end generation");
  CLI::Option* const grammar =
      app.add_option("--grammar", o.grammar, "A file in GBNF: the text is one of the grammar's")
          ->check(CLI::ExistingFile)
          ->excludes(ignore_end);
  app.add_option("--json-schema", o.json_schema, "A file: the text is JSON that the schema admits")
      ->check(CLI::ExistingFile)
      ->excludes(ignore_end)
      ->excludes(grammar);
  app.add_flag("--logprobs", o.logprobs, "With --json, the log probability of each token");
  app.add_flag("--profile", o.profile, "Time by operation");
  app.footer(
      "Examples:\n  cgp generate model.gguf -p 'Once upon a time' --temperature 0\n"
      "  cgp generate model.gguf -p @prompt.txt --max-tokens 64 --stop '\\n\\n' --json\n"
      "  cgp generate model.gguf -p 'Reply in JSON: ' --json-schema reply.schema.json");
}

void declare_chat(CLI::App& app, CommandLine& c) {
  GenerateOptions& o = c.chat;
  declare_model(app, o.model);
  app.add_option("--system", o.prompt, "What the model is told beforehand");
  declare_sampling(app, o);
  app.footer(
      "Lines of standard input are the user's messages.\n"
      "Examples:\n  cgp chat model.gguf\n  cgp chat model.gguf --system 'Answer in one sentence.' "
      "--temperature 0\n"
      "  echo 'What is a GPU?' | cgp chat model.gguf --json");
}

void declare_serve(CLI::App& app, CommandLine& c) {
  ModelOptions& m = c.serve.model;
  serve::ServeOptions& s = c.serve.serve;
  declare_model(app, m);
  m.sequences = 16, m.prompt_rows = 64, m.cache_tokens = 32768;
  app.add_option("--host", s.host, "The address to listen on; 0.0.0.0: all of this machine")
      ->capture_default_str();
  app.add_option("--port", s.port, "0: one that is free")->check(CLI::Range(0, 65535))->capture_default_str();
  app.add_option("--name", s.model, "What requests call the model; else the name of the file");
  CLI::Option* const key =
      app.add_option("--api-key", s.api_key, "What clients must send as 'Authorization: Bearer KEY'")
          ->envname("CGP_API_KEY");
  app.add_option("--api-key-file", c.serve.api_key_file, "A file that holds the key")->excludes(key);
  app.add_option("--parallel", m.sequences, "Sequences of a batch, at most; others wait")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--cache-tokens", m.cache_tokens,
                 "Tokens that the key-value cache holds, and never less than one context")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option(
         "--prompt-rows", m.prompt_rows,
         "Tokens of prompts in a step while others generate: more makes prompts faster and answers less even")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--embeddings", m.embeddings, "Give embeddings instead of text");
  app.add_option("--max-body", s.max_body, "Bytes of a request, at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-active", s.max_active,
                 "Sequences that run or wait, at most; more are answered with 429")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--idle-timeout", s.idle_seconds, "Seconds without a byte from or to a client")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--request-timeout", s.request_seconds, "Seconds of an answer, at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--drain", s.drain_seconds, "Seconds that answers get to end after SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.footer(
      "Examples:\n  cgp serve model.gguf\n  cgp serve model.gguf --host 0.0.0.0 --api-key-file key.txt\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", "
      "\"content\": \"Hello\"}]}'");
}

void declare_quantize(CLI::App& app, CommandLine& c) {
  QuantizeCommandOptions& o = c.quantize;
  app.add_option("IN", o.in, "A GGUF file, best in F16, BF16 or F32")->required();
  app.add_option("OUT", o.out, "The file to write")->required();
  app.add_option(
         "TYPE", o.type,
         "F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 Q3_K_L Q3_K_M Q3_K_S Q2_K "
         "TQ2_0 TQ1_0")
      ->required();
  app.add_flag("--requantize", o.requantize,
               "Take tensors that are quantised already, which loses more than from F16");
  app.footer(
      "Examples:\n  cgp quantize model-f16.gguf model-q4.gguf Q4_K_M\n  cgp quantize model-f16.gguf "
      "model-q8.gguf Q8_0 "
      "--json");
}

void declare_perplexity(CLI::App& app, CommandLine& c) {
  PerplexityOptions& o = c.perplexity;
  declare_model(app, o.model);
  app.get_option("--context")->description("Tokens of a chunk, whose second half is predicted; 0: 512");
  app.add_option("TEXT", o.text, "A file with text")->required();
  app.footer(
      "Examples:\n  cgp perplexity model.gguf text.txt\n  cgp perplexity model.gguf text.txt --activations "
      "int8 --json");
}

void declare_doctor(CLI::App& app, CommandLine& c) {
  app.add_option("--check", c.doctor.check, "Only this item; exit code 3 when it is absent");
  app.footer("Examples:\n  cgp doctor\n  cgp doctor --json\n  cgp doctor --check ncu");
}

void declare_problems(CLI::App& app, tune::GemmSelection& s) {
  app.add_option("--shapes", s.shapes, "MxNxK or BATCHxMxNxK, several with commas; instead of --set");
  app.add_option("--set", s.set, "square, llm, misaligned, batched or all; several with commas")
      ->capture_default_str();
  app.add_option("--dtype", s.dtype, "Types, with commas: bf16, f32:fast, e4m3_e5m2_bf16@channel")
      ->capture_default_str();
  app.add_option("--layout", s.layout, "nn, nt, tn, tt, with commas")->capture_default_str();
}

void declare_bench(CLI::App& app, CommandLine& c) {
  BenchOptions& o = c.bench;
  app.add_option("WHAT", o.what, "gemm")->required()->check(CLI::IsMember({"gemm"}));
  declare_problems(app, o.problems);
  app.add_option("--device", o.device, "cuda, cuda:1")->capture_default_str();
  app.add_option("--table", o.table,
                 "Measured winners that count: user (cgp tune's, then what ships), shipped, none")
      ->check(CLI::IsMember({"user", "shipped", "none"}))
      ->capture_default_str();
  app.add_flag("!--no-peer", o.peer, "Without cuBLASLt");
  app.add_option("--epilogue", o.problems.epilogue,
                 "none, relu, gelu, bias, bias_relu, bias_gelu, with commas")
      ->capture_default_str();
  app.add_option("--rounds", o.rounds, "Timed rounds; 0: 40, and 20 for products above 10^12 operations")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_option("--fail-below", o.fail_below, "Exit with 1 when a ratio is below");
  app.add_option("-o,--out", o.output, "FILE.json: the same object as --json prints")->check(writable());
  app.add_option("--svg", o.svg, "FILE.svg: problems against TFLOP/s, ours and theirs")->check(writable());
  app.footer(
      "The ratio is the peer's median time over ours: above 1, ours is faster.\n\nExamples:\n"
      "  cgp bench gemm\n  cgp bench gemm --set llm --dtype bf16,f16 --svg llm.svg\n"
      "  cgp bench gemm --shapes 4096x4096x4096,64x512x512x512 --json");
}

void declare_plan(CLI::App& app, CommandLine& c) {
  PlanOptions& o = c.plan;
  app.add_option("WHAT", o.what, "gemm, attention, rms_norm, ...: cgp list")->required();
  app.add_option("SETTINGS", o.settings, "Of kernels other than gemm: NAME=VALUE as for cgp run");
  CLI::Option* of_gemm[] = {
      app.add_option("-m,--m", o.m, "Rows of C")->capture_default_str(),
      app.add_option("-n,--n", o.n, "Columns of C")->capture_default_str(),
      app.add_option("-k,--k", o.k, "Length of the sums")->capture_default_str(),
      app.add_option("--batch", o.batch, "Independent products")->capture_default_str(),
      app.add_option("--shape", o.shape, "MxNxK or BATCHxMxNxK, instead of these"),
      app.add_option("--dtype", o.dtype, "Types: bf16, f32:fast, e4m3_e5m2_bf16@channel")
          ->capture_default_str(),
      app.add_option("--layout", o.layout, "nn, nt, tn or tt")->capture_default_str(),
      app.add_option("--lda", o.lda, "Elements between rows of A; 0: dense")->capture_default_str(),
      app.add_option("--ldb", o.ldb, "Elements between rows of B; 0: dense")->capture_default_str(),
      app.add_option("--ldc", o.ldc, "Elements between rows of C; 0: dense")->capture_default_str(),
      app.add_option("--beta", o.beta, "Scale of the old C")->capture_default_str(),
      app.add_option("--sms", o.sms, "Streaming multiprocessors; 0: the device's")->capture_default_str(),
      app.add_option("--table", o.table, "Measured winners that count: user, shipped, none")
          ->check(CLI::IsMember({"user", "shipped", "none"}))
          ->capture_default_str()};
  for (CLI::Option* option : of_gemm) {
    option->group("Of gemm");
    option->each([&o, name = option->get_name()](const std::string&) { o.of_gemm.push_back(name); });
  }
  app.add_option("--arch", o.arch, "Target, when no device is given")->capture_default_str();
  app.add_option("--device", o.device, "Plan for this device (cuda, cuda:1) instead of an architecture");
  app.footer(
      "Examples:\n  cgp plan gemm --m 4096 --n 14336 --k 4096\n"
      "  cgp plan gemm --shape 1000x3001x5003 --dtype f16 --layout nn --arch sm_80 --json\n"
      "  cgp plan attention n=4096 d=128 causal=1\n  cgp plan rms_norm rows=8192 cols=4096 --arch sm_80");
}

void declare_tune(CLI::App& app, CommandLine& c) {
  TuneOptions& o = c.tune;
  app.add_option("WHAT", o.what, "gemm")->required()->check(CLI::IsMember({"gemm"}));
  app.add_option("FILES", o.files, "With --report: files of earlier measurements (--out); needs no GPU");
  declare_problems(app, o.problems);
  app.add_option("--device", o.device, "cuda, cuda:1")->capture_default_str();
  app.add_option("--rounds", o.rounds, "Timed rounds of the leaders; 0: 20")->check(CLI::Range(0, 1000000));
  app.add_flag("--report", o.report, "Say how much slower than the fastest the cost model's choices are");
  app.add_option("--arch", o.arch, "With FILES: what they were measured on")->capture_default_str();
  app.add_flag("--dry-run", o.dry_run, "Keep nothing");
  app.add_option("-o,--out", o.output, "FILE.json: every candidate's times")->check(writable());
  app.add_option("--table-file", o.table_file, "Write the winners to this file too")->check(writable());
  app.footer(
      "Winners are kept for this device, driver and version of cgp, and gemm takes them from there.\n\n"
      "Examples:\n  cgp tune gemm --shapes 4096x4096x4096\n  cgp tune gemm --set llm --out llm.json\n"
      "  cgp tune gemm --report llm.json");
}

struct Command {
  const char* name;
  const char* summary;
  std::function<void(CLI::App&, CommandLine&)> declare;
  std::function<int(const Context&, const CommandLine&)> run;
};

const std::vector<Command>& commands() {
  static const std::vector<Command> table = [] {
    std::vector<Command> all{
        {"list", "Name the kernels that cgp ships", declare_list,
         [](const Context& x, const CommandLine& c) { return list(x, c.list); }},
        {"emit", "Print a kernel's PTX, WGSL or SPIR-V", declare_emit,
         [](const Context& x, const CommandLine& c) { return emit(x, c.emit); }},
        {"web", "Write a page that runs kernels or a model on WebGPU in a browser", declare_web,
         [](const Context& x, const CommandLine& c) { return web(x, c.web); }},
        {"pipeline", "Follow a kernel from what was recorded to machine code", declare_pipeline,
         [](const Context& x, const CommandLine& c) { return pipeline(x, c.pipeline); }},
        {"inspect", "Say what a model file holds; of a kernel, the same as pipeline", declare_inspect,
         [](const Context& x, const CommandLine& c) {
           return model::is_model_file(c.pipeline.kernel) ? inspect_model(x, c.pipeline.kernel)
                                                          : pipeline(x, c.pipeline);
         }},
        {"tokenize", "Turn text into the ids of a model's tokenizer, or ids into text", declare_tokenize,
         [](const Context& x, const CommandLine& c) { return tokenize(x, c.tokenize); }},
        {"generate", "Continue a text with a model", declare_generate,
         [](const Context& x, const CommandLine& c) { return generate(x, c.generate); }},
        {"chat", "Talk to a model", declare_chat,
         [](const Context& x, const CommandLine& c) { return chat(x, c.chat); }},
        {"serve", "Answer OpenAI's HTTP requests with a model, and chat in a browser", declare_serve,
         [](const Context& x, const CommandLine& c) { return serve(x, c.serve); }},
        {"quantize", "Write a model file with smaller weights", declare_quantize,
         [](const Context& x, const CommandLine& c) { return quantize(x, c.quantize); }},
        {"perplexity", "Say how well a model predicts a text", declare_perplexity,
         [](const Context& x, const CommandLine& c) { return perplexity(x, c.perplexity); }},
        {"run", "Run a kernel, a PTX file or a launch spec, checked", declare_run,
         [](const Context& x, const CommandLine& c) { return run(x, c.run); }},
        {"explain", "Say what a kernel, PTX file, cubin or program is made of", declare_explain,
         [](const Context& x, const CommandLine& c) { return explain(x, c.explain); }},
        {"bench", "Time kernels against their peers on a GPU", declare_bench,
         [](const Context& x, const CommandLine& c) { return bench(x, c.bench); }},
        {"plan", "Say what would run a problem, why, and how far from the limits", declare_plan,
         [](const Context& x, const CommandLine& c) { return plan(x, c.plan); }},
        {"tune", "Time the candidates on this device and keep the winners", declare_tune,
         [](const Context& x, const CommandLine& c) { return tune(x, c.tune); }},
        {"doctor", "Say what this machine has and what that means for cgp", declare_doctor,
         [](const Context& x, const CommandLine& c) { return doctor(x, c.doctor); }},
    };
    for (const ProfilerCommand& p : profiler_commands())
      all.push_back({p.name, p.summary, [&p](CLI::App& app, CommandLine& c) { p.declare(app, c.profiler); },
                     [&p](const Context& x, const CommandLine& c) { return p.run(x, c.profiler); }});
    return all;
  }();
  return table;
}

bool asks_for_json(const std::vector<std::string>& args) {
  return std::find(args.begin(), args.end(), "--json") != args.end();
}

/// "run" for "rnu", "--grid" for "--gird".
std::string near_miss(const std::string& word, const std::vector<std::string>& known) {
  const auto near = text::closest(word, known, 1);
  return near.empty() ? "" : cat("did you mean ", near[0], "?");
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* o : app.get_options())
    for (const auto& name : o->get_lnames()) out.push_back("--" + name);
  return out;
}

[[noreturn]] void throw_usage(const CLI::ParseError& e, const CLI::App& command,
                              const std::vector<std::string>& args) {
  const auto inner = command.get_subcommands([](const CLI::App*) { return true; });
  if (dynamic_cast<const CLI::RequiredError*>(&e) && !inner.empty() && command.get_subcommands().empty()) {
    std::vector<std::string> names;
    for (const CLI::App* s : inner) names.push_back(s->get_name());
    const bool word = args.size() > 1 && args[1].rfind('-', 0) != 0;
    throw ArgumentError(ErrorText{word ? cat("cgp ", args[0], " has no \"", args[1], "\"")
                                       : cat("cgp ", args[0], " needs to be told what"),
                                  {},
                                  word ? near_miss(args[1], names) : "",
                                  cat("one of: ", text::join(names, " "))});
  }
  std::string hint = cat("see cgp ", command.get_name(), command.get_name().empty() ? "--help" : " --help");
  if (dynamic_cast<const CLI::ExtrasError*>(&e)) {
    auto known = option_names(command);
    for (const CLI::App* s : inner)
      for (auto& name : option_names(*s)) known.push_back(std::move(name));
    for (const auto& word : args) {
      const std::string option = word.substr(0, word.find('='));
      if (option.rfind("--", 0) != 0 || std::find(known.begin(), known.end(), option) != known.end())
        continue;
      const auto near = near_miss(option, known);
      throw ArgumentError(ErrorText{cat("unknown option ", option), {}, near, hint});
    }
  }
  throw ArgumentError(ErrorText{e.what(), {}, {}, hint});
}

Context context_of(const CommandLine& c) {
  const auto wish = c.color == "always"  ? ColorWish::always
                    : c.color == "never" ? ColorWish::never
                                         : ColorWish::automatic;
  return {c.json, use_color(wish, STDOUT_FILENO), use_color(wish, STDERR_FILENO),
          terminal_width(STDOUT_FILENO)};
}

void check_command_word(const std::vector<std::string>& args) {
  if (args.empty() || args[0].rfind('-', 0) == 0) return;
  std::vector<std::string> names{"help", "version", "completion"};
  for (const auto& command : commands()) names.emplace_back(command.name);
  if (std::find(names.begin(), names.end(), args[0]) != names.end()) return;
  throw ArgumentError(ErrorText{cat("unknown command \"", args[0], "\""),
                                {},
                                near_miss(args[0], names),
                                cat("commands: ", text::join(names, " "))});
}

int dispatch(std::vector<std::string> args) {
  route(args);
  check_command_word(args);
  if (!args.empty() && args[0] == "help") {  // cgp help run = cgp run --help
    args.erase(args.begin());
    check_command_word(args);
    args.push_back("--help");
  }
  CommandLine line;
  CLI::App app("cgp: compute, generate, profile. GPU kernels that run, checked, with or without a GPU.",
               "cgp");
  app.get_formatter()->column_width(26);
  declare_common(app, line);
  bool wants_version = false;
  app.add_flag("--version", wants_version, "Version, PTX ISA, targets and build id");
  app.footer(
      "Exit codes: 0 clean, 1 a check failed, 2 usage or bad input, 3 unavailable here, 4 undecided, 5 the "
      "measured\n"
      "program failed, 70 a bug in cgp.\n\n"
      "Examples:\n  cgp list\n  cgp run gemm m=256 n=256 k=256\n  cgp run --spec case.json --json\n  cgp "
      "COMMAND --help");
  std::vector<std::pair<CLI::App*, const Command*>> subcommands;
  for (const auto& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->get_formatter()->column_width(26);
    declare_common(*sub, line);
    command.declare(*sub, line);
    for (CLI::App* inner : sub->get_subcommands(nullptr)) declare_common(*inner, line);
    subcommands.emplace_back(sub, &command);
  }
  CLI::App* version_command = app.add_subcommand("version", "As --version");
  declare_common(*version_command, line);
  std::string shell;
  CLI::App* completion_command = app.add_subcommand("completion", "Print a script that completes commands");
  completion_command->add_option("SHELL", shell, "bash")->required()->check(CLI::IsMember({"bash"}));
  completion_command->footer(
      "Examples:\n  source <(cgp completion bash)\n"
      "  cgp completion bash > ~/.local/share/bash-completion/completions/cgp");
  app.require_subcommand(0, 1);
  const CLI::App* chosen = &app;
  for (const auto& [sub, command] : subcommands)
    if (!args.empty() && args[0] == command->name) chosen = sub;
  if (!args.empty() && args[0] == "completion") chosen = completion_command;
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    write_out(chosen == &app ? app.help() : chosen->help("cgp"));
    return kClean;
  } catch (const CLI::ParseError& e) {
    throw_usage(e, *chosen, args);
  }
  const Context context = context_of(line);
  if (wants_version || version_command->parsed()) return version(context);
  if (completion_command->parsed()) {
    std::vector<std::string> kernels;
    for (const auto& k : kernels::catalog()) kernels.push_back(k.name);
    write_out(bash_completion(app, kernels));
    return kClean;
  }
  for (const auto& [sub, command] : subcommands) {
    if (!sub->parsed()) continue;
    line.run.command_line = {"cgp"};
    line.run.command_line.insert(line.run.command_line.end(), args.begin(), args.end());
    line.bench.command_line = line.tune.command_line = line.run.command_line;
    line.run.checks_given = command->name == std::string("run") && sub->count("--check") > 0;
    return command->run(context, line);
  }
  write_out(app.help());
  return args.empty() ? kUsage : kClean;
}

}  // namespace
}  // namespace cgp::cli

int main(int argc, char** argv) {
  using namespace cgp::cli;
  // Beyond the limit of a file's size a write fails, and says so. A handler and not SIG_IGN, which the
  // programs that are measured would inherit.
  std::signal(SIGXFSZ, [](int) {});
  const std::vector<std::string> args(argv + 1, argv + argc);
  const bool color = use_color(ColorWish::automatic, STDERR_FILENO);
  const bool json = asks_for_json(args);
  return guarded([&] { return dispatch(args); }, json, color);
}
