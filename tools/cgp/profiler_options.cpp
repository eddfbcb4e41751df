// SPDX-License-Identifier: Apache-2.0
// The command lines of the profiler's commands.
#include <CLI/CLI.hpp>
#include <cstdlib>

#include "cgp/profile/collect/program.h"
#include "cgp/spec/validators.h"
#include "tools/cgp/profiler_commands.h"

namespace cgp::cli {
namespace {

void add_command(CLI::App& app, std::vector<std::string>& command, const char* text) {
  app.add_option("COMMAND", command, text);
}

CLI::App* sub(CLI::App& app, const char* name, const char* text, std::string& into) {
  CLI::App* s = app.add_subcommand(name, text);
  s->get_formatter()->column_width(26);
  s->callback([&into, name] { into = name; });
  return s;
}

/// "5%", "5" and "0.05" as a share.
std::string share_of(std::string s) {
  const double v = std::strtod(s.c_str(), nullptr);
  return (!s.empty() && s.back() == '%') || v >= 1 ? std::to_string(v / 100) : s;
}

/// "10s" and "500ms" as seconds; other texts stay, and are refused as numbers where they are none.
std::string seconds_of(std::string s) {
  char* rest = nullptr;
  if (std::strtod(s.c_str(), &rest); rest == s.c_str()) return "no number";  // which the conversion refuses
  const auto ends = [&](const std::string& unit) {
    return s.size() > unit.size() && s.compare(s.size() - unit.size(), unit.size(), unit) == 0;
  };
  if (ends("ms")) return std::to_string(std::strtod(s.c_str(), nullptr) / 1000);
  if (ends("s")) s.pop_back();
  return s;
}

/// A number from `low` on; CLI::Range lets NaN pass.
CLI::Validator at_least(double low, bool more = false) {
  return {[low, more](const std::string& s) {
            char* end = nullptr;
            const double v = std::strtod(s.c_str(), &end);
            if (end != s.c_str() && (more ? v > low : v >= low) && v < 1e300) return std::string();
            return s + " is not " + (more ? "more than " : "at least ") +
                   (low == 0 ? "0" : std::to_string(int(low)));
          },
          ""};
}

/// Which time of a program counts.
void declare_timing(CLI::App& app, profile::TimingOptions& t) {
  CLI::Option* clock =
      app.add_option("--clock", t.clock, "wall, or cpu: user and system time")->capture_default_str();
  CLI::Option* regex =
      app.add_option("--time-regex", t.regex,
                     "Programs print their time, as those on a GPU do: the first group of this expression");
  regex->excludes(clock);
  app.add_option("--unit", t.unit, "Of that time: s, ms, us, ns")->needs(regex)->capture_default_str();
}

void declare_limits(CLI::App& app, double& timeout, double& duration) {
  app.add_option("--timeout", timeout, "Seconds after which the program has failed and is ended")
      ->transform(seconds_of)
      ->check(at_least(0, true));
  app.add_option("--duration", duration, "Only so many seconds of it")
      ->transform(seconds_of)
      ->check(at_least(0, true));
}

void declare_program(CLI::App& app, ProfileOptions& p) {
  add_command(app, p.command, "The program and its arguments, after --");
  app.add_option(
         "--counters", p.counters,
         "Hardware counters of each kernel, by running it again: none, basic, roofline, memory, stalls, or "
         "CUPTI names joined by commas")
      ->capture_default_str();
  app.add_option("--launches", p.launches, "With --counters: only so many launches")
      ->check(at_least(1))
      ->capture_default_str();
  app.add_option(
         "--count", p.count,
         "Count in another run: none; instructions by callgrind or step (slow, AVX-512 too); syscalls")
      ->check(CLI::IsMember({"none", "callgrind", "step", "syscalls"}))
      ->capture_default_str();
  app.add_option(
         "--sample", p.sample_rate,
         "Samples of each processor's work in a second: the functions and lines that take the time; 0: none")
      ->check(CLI::Range(0, 20000))
      ->capture_default_str();
  app.add_flag("--waits", p.waits,
               "Where threads wait, too (off-CPU time): some microseconds each time that one stops");
  app.add_flag(
      "--launch-stacks", p.launch_stacks,
      "Which functions launched the kernels: GPU time as a flame graph; some microseconds for each stack");
  app.add_option("--kernel-filter", p.filter, "Only kernels whose name contains this");
  declare_limits(app, p.timeout, p.duration);
  app.add_option("--save", p.save, "Write the profile to this file")->check(writable());
  app.add_flag("--api", p.all_api, "Record every CUDA call, not only launches, copies and waits");
  app.add_option(
         "--record", p.record,
         "auto: all launches, until that cost more than 5 %, then parts; all; or ON,EVERY in milliseconds")
      ->check(CLI::Validator([](const std::string& s) { return profile::record_problem(s); }, "WHAT"))
      ->capture_default_str();
  app.add_flag("--heap", p.heap,
               "Run it once more and count what it allocates, by callers: bytes, leaks, lifetimes");
  app.add_flag("--energy", p.energy, "Joules of the processor's package and of the GPUs meanwhile");
  app.add_flag("--overhead", p.overhead, "Run it once more without recording and say what recording cost");
  app.add_flag("--no-trace,!--trace", p.no_trace,
               "Record what it does on the GPU (the default), or leave the GPU alone");
}

void declare_processes(CLI::App& app, ProfileOptions& p, const std::string& which) {
  app.add_option("--processes", p.processes,
                 which +
                     " processes that measure one after the other: the interval is between them, since each "
                     "has its own alignment and pages")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

void declare_profile(CLI::App& app, ProfilerOptions& o) {
  ProfileOptions& p = o.profile;
  app.footer(
      "Examples:\n  cgp profile python -- script.py\n  cgp profile binary --save a.json -- ./program\n  cgp "
      "profile kernel "
      "softmax rows=64 cols=256 --device emu\n  cgp profile WHAT --help");
  app.require_subcommand(1);
  CLI::App* kernel =
      sub(app, "kernel", "One kernel of the catalogue: times and counters, or exact counters without a GPU",
          p.what);
  kernel->add_option("KERNEL", p.command, "A kernel that `cgp list` names, and its options as NAME=VALUE");
  kernel->add_option("--name", p.kernel, "The kernel, by an option");
  kernel->add_option("--size", p.kernel_size, "N or MxNxK: m, n, k of products, rows and cols, or n");
  kernel->add_option("--device", p.device, "auto, emu, emu:ARCH, cuda, cuda:N")->capture_default_str();
  kernel->add_option("--counters", p.counters, "On a GPU: none, basic, roofline, memory, stalls")
      ->capture_default_str();
  kernel->add_flag(
      "--roofline", p.roofline,
      "Where it lies under the data sheet's ceilings; on a GPU by counted bytes, on the emulator by the "
      "device that its architecture is known by");
  kernel->add_option("--metrics", p.metrics, "Print only these of `cgp metrics`, joined by commas")
      ->delimiter(',');
  kernel->add_option("--repeat", p.repeat, "Timed launches")->check(at_least(1))->capture_default_str();
  kernel->add_option("--save", p.save, "Write the profile to this file")->check(writable());
  kernel->footer("Example:\n  cgp profile kernel gemm m=512 n=512 k=512 --device emu --save gemm.json");
  CLI::App* binary =
      sub(app, "binary", "Any program: processor, memory, files, and its kernels on the GPU", p.what);
  declare_program(*binary, p);
  binary->footer("Example:\n  cgp profile binary --counters basic -- ./train --steps 10");
  CLI::App* python = sub(app, "python", "The same for a Python script", p.what);
  declare_program(*python, p);
  python->footer("Example:\n  cgp profile python -- script.py --batch 8");
  CLI::App* compare =
      sub(app, "compare", "One kernel on several back ends, each number measured or counted", p.what);
  compare->add_option("KERNEL,--kernel", p.command, "A kernel and its options");
  compare->add_option("--function", p.function,
                      "A loop of the processor instead: axpy, dot, reciprocal, square_root");
  compare->add_option("--size", p.size, "Elements of the loop; of a kernel its m, n, k, rows and cols, or n")
      ->check(CLI::Range(1.0, 1e11));
  compare
      ->add_option(
          "--backends", p.backends,
          "emu, emu:ARCH, cuda, cuda:N; gemm also cublas and, one thread, scalar, sse2, avx2, avx512; loops: "
          "scalar, sse2, avx2, avx512")
      ->delimiter(',');
  compare->add_flag(
      "--allow-estimates", p.allow_estimates,
      "A GPU that is not here gets the least time that its data sheet allows, marked as an estimate");
  compare->add_option("--repeat", p.repeat, "Timed launches")->check(at_least(1))->capture_default_str();
  declare_processes(*compare, p, "With --function: fresh");
  compare->footer(
      "Examples:\n  cgp profile compare --kernel gemm --size 256 --backends scalar,avx2,avx512,emu,cuda\n"
      "  cgp profile compare --function dot --size 4096");
  for (const auto& [name, text] :
       {std::pair{"simd", "A loop (dot, axpy, ...) with vector instructions: time and instruction mix"},
        std::pair{"scalar", "The same without vectors"}}) {
    CLI::App* s = sub(app, name, text, p.what);
    s->add_option("--function", p.function, "axpy, dot, reciprocal, square_root");
    s->add_option("--size", p.size, "Elements")->check(CLI::Range(1.0, 1e11));
    declare_processes(*s, p, "Fresh");
    s->add_flag("--no-count", p.no_count, "Leave the instructions of one call uncounted");
    s->add_flag("--cross-profile", p.cross_profile, "With --arch neon: in QEMU");
    s->add_option("--arch", p.arch, "scalar, sse2, avx2, avx512, neon; the widest there is");
    s->footer(std::string("Example:\n  cgp profile ") + name + " --function dot --size 4096");
    s->add_option("--save", p.save, "Write the profile to this file")->check(writable());
  }
  for (const auto& [name, text] :
       {std::pair{"parallel", "One thread against all: speed-up, balance, cost of starting threads"},
        std::pair{"scaling", "1, 2, 4, ... threads"}}) {
    CLI::App* s = sub(app, name, text, p.what);
    s->add_option("--threads,--max-threads", p.threads, "Threads; auto: as many as the machine has")
        ->transform([](std::string t) { return t == "auto" ? std::string("0") : t; })
        ->check(CLI::Range(0, 4096));
    s->add_option("--function", p.function, "axpy, dot, reciprocal, square_root");
    s->add_option("--runs", p.runs, "Runs of each number of threads, each beside one with a single thread")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    s->add_option("--size", p.size, "Elements of each piece")->check(CLI::Range(1.0, 1e11));
    s->footer(std::string("Example:\n  cgp profile ") + name + " --function dot --size 100000 --threads 4");
    s->add_option("--save", p.save, "Write the profile to this file")->check(writable());
  }
  CLI::App* library = sub(app, "library", "A function of a shared library, called again and again", p.what);
  library->add_option("--so", p.library, "The library")->required();
  library->add_option("--symbol", p.symbol, "The function")->required();
  library->add_option(
      "--args", p.signature,
      "Its arguments: TYPE:VALUE, TYPE*:COUNT for a buffer, str:TEXT, joined by commas; types: i32, "
      "u32, i64, u64, f32, f64");
  library->add_option("--seconds", p.budget, "For the calls")
      ->check(at_least(0, true))
      ->capture_default_str();
  library->add_option("--flops", p.flops, "Operations of one call");
  library->add_option("--bytes", p.bytes, "Bytes that one call must move");
  library->add_option("--timeout", p.timeout, "Seconds after which the process is ended")
      ->transform(seconds_of)
      ->check(at_least(0, true));
  library->add_flag("--no-trace", p.no_trace, "Leave the GPU alone");
  library->add_option("--save", p.save, "Write the profile to this file")->check(writable());
  library->footer(
      "Example:\n  cgp profile library --so libblas.so.3 --symbol cblas_sasum --args "
      "'i32:4096,f32*:4096,i32:1' --flops 4096");
  CLI::App* cublas =
      sub(app, "cublas", "A product of cuBLASLt's best algorithm, with ours beside it", p.what);
  cublas->add_option("--op", p.op, "gemm_bf16, gemm_f16, gemm_f32, gemm_tf32, gemm_e4m3")
      ->capture_default_str();
  cublas->add_option("--size", p.shape, "N, or MxNxK")->capture_default_str();
  cublas->add_option("--layout", p.layout, "nt, nn, tn, tt")->capture_default_str();
  cublas->add_option("--device", p.device, "cuda, cuda:N")->capture_default_str();
  cublas->add_option("--repeat", p.repeat, "Rounds")->check(at_least(1))->capture_default_str();
  cublas->add_option("--save", p.save, "Write the profile to this file")->check(writable());
  cublas->footer("Example:\n  cgp profile cublas --op gemm_bf16 --size 4096");
  CLI::App* quant =
      sub(app, "quant", "A product of quantised weights (GGUF's blocks, NF4) with vectors, on this processor",
          p.what);
  quant->add_option("--kernel", p.kernel, "q4k_gemv (default), q5k_gemv, q6k_gemv, q8_gemv, nf4_gemv");
  quant->add_option("--size", p.quant_size,
                    "N: N rows of N weights and one vector; or MxNxK: M rows of K, N vectors (4096)");
  quant->add_flag("--all", p.all_quant, "Every kernel, and a summary");
  quant->add_option("--activations", p.activations, "f32 or int8; int8 where the format has it");
  quant->add_option(
      "--arch", p.arch,
      "scalar, sse2, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx; the widest there is");
  quant->add_option("--threads", p.threads, "Threads at most; auto: as many as the machine has")
      ->transform([](std::string t) { return t == "auto" ? std::string("0") : t; })
      ->check(CLI::Range(0, 4096));
  quant->add_option("--runs", p.runs, "Pairs with 32-bit weights")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  quant->add_option("--save", p.save, "Write the profile to this file (with --all: the first)")
      ->check(writable());
  quant->footer("Example:\n  cgp profile quant --kernel q4k_gemv --size 4096x1x4096");
  CLI::App* wasm = sub(app, "wasm", "A function of a WebAssembly module: its time, its instructions", p.what);
  wasm->add_option("MODULE", p.library, "File of the module (.wasm)")->required();
  wasm->add_option("--function", p.function, "As it is exported; _start, or the only one");
  wasm->add_option("--args", p.signature, "Its arguments: numbers, joined by commas");
  wasm->add_option("--size", p.size, "Its only argument")->excludes("--args");
  wasm->add_option("--seconds", p.budget, "To spend on timing")
      ->check(at_least(0, true))
      ->capture_default_str();
  wasm->add_option("--save", p.save, "Write the profile to this file")->check(writable());
  wasm->footer("Example:\n  cgp profile wasm kernels.wasm --function dot --size 4096");
  CLI::App* wgpu = sub(
      app, "wgpu", "Transfers and the roofline of a WebGPU or Vulkan device, and a kernel under it", p.what);
  wgpu->add_option("KERNEL", p.command,
                   "A kernel that `cgp list` names, with NAME=VALUE; none: the device alone");
  wgpu->add_option("--device", p.device, "wgpu:N (auto: wgpu:0) or vulkan:N")->capture_default_str();
  wgpu->add_option("--repeat", p.repeat, "Samples of each time")->check(at_least(1))->capture_default_str();
  wgpu->add_option("--save", p.save, "Write the profile to this file")->check(writable());
  wgpu->add_option("--target", p.target, "web (a browser) or native")
      ->check(CLI::IsMember({"web", "native"}))
      ->capture_default_str();
  wgpu->add_option("--shader", p.shader, "Time a compute shader of your own: FILE.wgsl")
      ->check(CLI::ExistingFile);
  wgpu->add_option("--entry", p.entry, "Its entry point, where it has several");
  wgpu->add_option("--dispatch", p.dispatch, "Its workgroups: X, X,Y or X,Y,Z")->capture_default_str();
  wgpu->add_option(
      "--buffer", p.buffers,
      "What a binding of group 0 holds: BINDING=BYTES (zeros), or BINDING=FILE; 16 MiB, uniforms 256 "
      "bytes of zeros without it");
  wgpu->footer(
      "Examples:\n  cgp profile wgpu softmax dtype=f32 rows=64 cols=1000 --device vulkan:0\n"
      "  cgp profile wgpu --shader my.wgsl --dispatch 1024,1,1 --buffer 0=data.bin --buffer 2=4096");
  for (const char* name : {"metal", "neon"}) {
    CLI::App* s = sub(app, name, "Says what it would need", p.what);
    s->add_option("ARGUMENTS", p.command, "")->group("");
    s->footer(std::string("Example:\n  cgp profile ") + name);
    s->allow_extras();  // whatever is asked for, the answer is the sentence
  }
}

void declare_time(CLI::App& app, ProfilerOptions& o) {
  TimeOptions& b = o.time;
  add_command(app, b.command, "A kernel that `cgp list` names with NAME=VALUE, or a program after --");
  app.add_option("--against", b.against, "Another program: interleaved pairs and a verdict")
      ->each([&b](const std::string&) { b.against_given = true; });
  app.add_option("--runs", b.runs, "So many runs; otherwise until the median is known")->check(at_least(1));
  app.add_option("--precision", b.precision, "Half the 95 % interval over the median")
      ->check(at_least(0, true))
      ->capture_default_str();
  app.add_option("--budget", b.budget, "Seconds")->check(at_least(0, true))->capture_default_str();
  app.add_option("--also", b.also, "Another program of the same table, timed in the same rounds; repeat it")
      ->allow_extra_args(false);
  app.add_option("--parameter", b.parameters,
                 "NAME=a,b,c or NAME=FIRST..LAST..STEP: a row for each, {NAME} replaced; repeat it")
      ->allow_extra_args(false);
  app.add_option("--prepare", b.prepare, "What a shell runs before each run, which is not timed");
  app.add_option("--warmup", b.warmup, "Runs before those that count")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option("--bench", b.bench, "The program and its arguments, as one text");
  app.add_option("--counters", b.counters,
                 "Of a program: these of `cgp metrics`, joined by commas, from a run of its own")
      ->delimiter(',');
  app.add_option("--cuda-metrics", b.cuda_metrics,
                 "Of a program's kernels: basic, roofline, memory, stalls, or CUPTI names joined by commas");
  app.add_option("--flops", b.flops, "Operations of one run")->check(at_least(0));
  app.add_option("--bytes", b.bytes, "Bytes that one run must move")->check(at_least(0));
  app.add_flag("--roofline", b.roofline, "Set a program's rates beside this processor's, measured now");
  declare_timing(app, b.timing);
  app.add_option("--device", b.device, "Kernels: auto, emu, cuda")->capture_default_str();
  app.add_option("--baseline", b.baseline, "Name of a saved baseline");
  app.add_flag("--check-regression", b.check_regression, "Exit with 1 when it is slower than the baseline");
  app.add_option("--threshold", b.threshold, "Share (or with %) that counts as slower")
      ->transform(share_of)
      ->check(at_least(0))
      ->capture_default_str();
  app.add_flag("--count", b.count, "Count instructions with callgrind too: the same every time");
  app.add_option("--save", b.save, "Write the profile to this file")->check(writable());
  auto* csv = app.add_option("--csv", b.csv, "Write one row of statistics to this file")->check(writable());
  app.add_flag("--append", b.append, "Below the rows that it has")->needs(csv);
  app.add_option("--meta", b.meta,
                 "NAME=VALUE to keep beside the numbers, in the profile and the row; repeat it")
      ->allow_extra_args(false);
  app.footer(
      "Examples:\n  cgp time -- ./solver input.txt\n  cgp time --against './solver.old input.txt' -- "
      "./solver input.txt\n"
      "  cgp time --time-regex 'kernel: ([0-9.]+) us' --unit us -- ./gpu_solver\n"
      "  cgp time --parameter threads=1..8 --prepare 'rm -f cache' -- ./solver --threads {threads}\n"
      "  cgp time gemm m=4096 n=4096 k=4096 --device cuda --save gemm.json");
}

void declare_compete(CLI::App& app, ProfilerOptions& o) {
  CompeteOptions& c = o.compete;
  app.add_option("WORKLOAD", c.workload, "A name for the table");
  app.add_option("--ours", c.ours, "A command line");
  app.add_option("--theirs", c.theirs, "A command line; repeat it")->allow_extra_args(false);
  app.add_option("--label", c.labels, "Names in the order of the programs, joined by commas")->delimiter(',');
  app.add_option("--gemm", c.gemm, "N or MxNxK: the work is 2 M N K operations");
  app.add_option("--flops", c.flops, "Operations of one run")->check(at_least(0));
  app.add_option("--bytes", c.bytes, "Bytes that one run must move")->check(at_least(0));
  declare_timing(app, c.timing);
  app.add_option("--rounds", c.rounds, "In each round every program runs once")->capture_default_str();
  app.add_option("--timeout", c.timing.timeout_seconds, "Seconds for one run");
  app.add_flag("--check-output", c.check_output, "All must print what the first one prints");
  app.add_option("--save", c.save, "Write the samples to this file")->check(writable());
  app.footer(
      "Example:\n  cgp compete gemm --ours './mine 1024' --theirs 'python3 numpy_gemm.py 1024' --label "
      "mine,numpy --gemm 1024 "
      "\\\n      --time-regex 'time: ([0-9.]+) ms'");
}

void declare_diff(CLI::App& app, ProfilerOptions& o) {
  DiffOptions& d = o.diff;
  app.add_option("FILES", d.files, "Two profiles, or names of baselines; - reads standard input");
  app.add_option("--baseline", d.baseline, "The first of them");
  app.add_option("--current", d.current, "The second");
  app.add_option("--before", d.before, "A commit");
  app.add_option("--after", d.after, "Another one (HEAD)");
  app.add_option("--build", d.build, "Shell command that builds a checkout");
  app.add_option("--run", d.run, "Shell command that is timed in it");
  app.add_option(
      "--left", d.left,
      "A command line; or BACKEND:KERNEL with NAME=VALUE, as emu:softmax, emu:sm_80:softmax, cuda:gemm, "
      "avx2:dot");
  app.add_option("--right", d.right, "Another one");
  declare_timing(app, d.timing);
  app.add_option("--margin", d.margin, "A change must be larger than this share")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option("--equivalence", d.equivalence, "No change: within this share")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option("--budget", d.budget, "Seconds for the pairs")
      ->check(at_least(0, true))
      ->capture_default_str();
  app.add_option("--baselines", d.baselines, "Folder of baselines");
  app.add_flag("--strict", d.strict, "Exit with 4 when it cannot be decided");
  app.footer(
      "Examples:\n  cgp diff before.json after.json\n  cgp diff --before v1.0 --build 'make' --run "
      "'./bench'\n"
      "  cgp diff --left './a' --right './b'\n"
      "  cgp diff --left './a' --right './b' --time-regex 'kernel: ([0-9.]+) ms'");
}

void declare_baseline(CLI::App& app, ProfilerOptions& o) {
  BaselineOptions& b = o.baseline;
  app.require_subcommand(1);
  app.footer(
      "Examples:\n  cgp baseline save solver solver.json\n  cgp baseline history solver\n  cgp diff solver "
      "now.json");
  struct Action {
    const char *name, *text, *example;
  };
  for (const auto& [name, text, example] :
       {Action{"save", "Keep a profile under a name", "save solver solver.json"},
        Action{"show", "Print it", "show solver"}, Action{"list", "Name all", "list"},
        Action{"history", "All that were saved under a name, and where the level changed", "history solver"},
        Action{"calibrate", "Measure how much identical runs differ here", "calibrate"}}) {
    CLI::App* s = sub(app, name, text, b.action);
    s->add_option("--folder", b.folder, "Where they are kept (.cgp, or $CGP_BASELINES)");
    s->footer(std::string("Example:\n  cgp baseline ") + example);
    if (std::string(name) == "list" || std::string(name) == "calibrate") continue;
    s->add_option("NAME", b.name, "Its name")->required();
    if (std::string(name) != "save") continue;
    s->add_option("FILE", b.file, "A profile")->required();
    s->add_flag("--force", b.force, "Replace one of that name");
  }
}

void declare_trace(CLI::App& app, ProfilerOptions& o) {
  TraceOptions& t = o.trace;
  add_command(app, t.command, "The program and its arguments, after --");
  app.add_option("--from", t.from, "Recorded events instead of a program");
  app.add_option("--perfetto", t.perfetto, "Write for ui.perfetto.dev")->check(writable());
  app.add_option("--speedscope", t.speedscope, "Write for speedscope.app")->check(writable());
  app.add_option("--flamegraph", t.flamegraph, "Write a flame graph as SVG")->check(writable());
  app.add_option("--save", t.save, "Write a profile")->check(writable());
  declare_limits(app, t.timeout, t.duration);
  app.add_flag("--api", t.all_api, "Record every CUDA call");
  app.add_option(
         "--record", t.record,
         "auto: all launches, until that cost more than 5 %, then parts; all; or ON,EVERY in milliseconds")
      ->check(CLI::Validator([](const std::string& s) { return profile::record_problem(s); }, "WHAT"))
      ->capture_default_str();
  app.footer("Example:\n  cgp trace --perfetto trace.json --flamegraph flame.svg -- python3 script.py");
}

void declare_contract(CLI::App& app, ProfilerOptions& o) {
  ContractOptions& c = o.contract;
  app.require_subcommand(1);
  CLI::App* verify = sub(app, "verify", "Check contracts: PASS, FAIL, or SKIP with the reason", c.action);
  verify->add_option("FILES,--contract", c.files, "Contracts (YAML)");
  verify->add_option("--dir,--contracts-dir", c.folder, "All contracts below a folder");
  verify->add_flag("--self", c.self, "The contracts that cgp itself keeps");
  verify->add_flag("--safety", c.safety,
                   "Kernels also under all checks of the emulator, programs under valgrind; alone: --self");
  verify->add_flag("--fail-on-regression", c.fail_on_regression,
                   "Also nothing is worse than in the saved baseline of the contract's name");
  verify->add_option("--baselines", c.baselines, "Folder of baselines");
  verify->add_option("--profile", c.profile, "Check a saved profile instead of measuring");
  verify->add_option("--define", c.definitions, "NAME=VALUE: what ${NAME} is in the commands; repeat it")
      ->allow_extra_args(false);
  verify->add_option("--junit", c.junit, "Write JUnit XML")->check(writable());
  verify->add_flag("--github", c.github, "Print annotations for GitHub");
  verify->add_flag("--strict", c.strict, "SKIP is exit code 4, unknown keys are failures");
  CLI::App* generate = sub(app, "generate", "A contract that a measured profile keeps", c.action);
  generate->add_option("PROFILE", c.profile, "A saved profile");
  generate->add_option("--kernel", c.kernel, "A kernel of `cgp list` and its options, measured now");
  generate->add_option("--size", c.size, "N or MxNxK")->needs("--kernel");
  generate->add_option("--device", c.device, "auto, emu, emu:ARCH, cuda, cuda:N")->capture_default_str();
  generate->add_option("--name", c.name, "Its name");
  generate
      ->add_option("--tolerance", c.tolerance,
                   "Room on measured numbers, as a share (or with %); exact counts get none")
      ->transform(share_of)
      ->check(at_least(0))
      ->capture_default_str();
  generate->add_option("-o,--output", c.output, "Write to this file")->check(writable());
  app.footer(
      "Examples:\n  cgp contract generate --kernel softmax --size 64 -o softmax.yaml\n  cgp contract verify "
      "softmax.yaml");
  verify->footer(
      "Examples:\n  cgp contract verify softmax.yaml\n  cgp contract verify --dir contracts --junit "
      "contracts.xml --github\n"
      "  cgp contract verify solver.yaml --define PROGRAM=./solver");
  generate->footer(
      "Examples:\n  cgp contract generate softmax.json --name softmax -o softmax.yaml\n"
      "  cgp contract generate --kernel softmax --size 64 --device emu");
}

void declare_roofline(CLI::App& app, ProfilerOptions& o) {
  RooflineOptions& r = o.roofline;
  app.add_option("--target", r.target, "cpu, avx2, avx512 or cuda")->capture_default_str();
  app.add_option("--device", r.device, "cuda: the data sheet of this device, without having it");
  app.add_flag("--empirical", r.empirical, "Measure (the CPU is always measured)");
  app.add_option("--seconds", r.seconds, "For the CPU's ceilings")
      ->check(at_least(0, true))
      ->capture_default_str();
  app.add_option("--kernels", r.kernels,
                 "Points measured now: of a GPU kernels of `cgp list`, of the processor axpy, dot, ...")
      ->delimiter(',');
  app.add_option("--point", r.points, "A saved profile of a kernel as a point; repeat it")
      ->allow_extra_args(false);
  app.add_option("--export,--svg", r.svg,
                 "Write the picture as SVG; to .json the numbers, to .txt both as text")
      ->check(writable());
  app.add_option("--save", r.save, "Write a profile for the report")->check(writable());
  app.footer(
      "Examples:\n  cgp roofline --target cuda --device H200 --svg roof.svg\n  cgp roofline --target cpu");
}

void declare_report(CLI::App& app, ProfilerOptions& o) {
  app.add_option("FILES", o.report.files, "Saved profiles");
  app.add_option("-o,--output", o.report.output, "The HTML file")->check(writable())->capture_default_str();
  app.add_option("--title", o.report.title, "Its title");
  app.footer("Example:\n  cgp report a.json b.json -o report.html --title 'Before and after'");
}

void declare_lint(CLI::App& app, ProfilerOptions& o) {
  app.add_option("PATHS", o.lint.paths, "Sources or folders");
  app.add_flag("--simd-safety", o.lint.simd_safety,
               "Aligned and streaming SIMD accesses without a visible guarantee (the only check so far)");
  app.footer("Example:\n  cgp lint --simd-safety src");
}

void declare_memcheck(CLI::App& app, ProfilerOptions& o) {
  add_command(app, o.memcheck.command, "The program and its arguments, after --");
  app.add_option("--gpu", o.memcheck.gpu,
                 "What it does on the GPU instead, by this tool of compute-sanitizer: memcheck, racecheck, "
                 "initcheck, synccheck")
      ->check(CLI::IsMember({"memcheck", "racecheck", "initcheck", "synccheck"}));
  app.add_flag_callback(
      "--alignment", [&o] { o.memcheck.gpu = "alignment"; },
      "Only accesses that are not aligned as their instruction asks, at full speed; AVX-512 too, and without "
      "valgrind");
  app.add_option("--timeout", o.memcheck.timeout, "Seconds after which the program is ended")
      ->transform(seconds_of)
      ->check(at_least(0, true));
  app.footer("Examples:\n  cgp memcheck -- ./program\n  cgp memcheck --gpu racecheck -- ./cuda_program");
}

void declare_syscalls(CLI::App& app, ProfilerOptions& o) {
  add_command(app, o.syscalls.command, "The program and its arguments, after --");
  app.add_option("--save", o.syscalls.save, "Write the record to this file")->check(writable());
  app.add_option("--golden", o.syscalls.golden,
                 "Compare with this record: exit code 1 and the first differences where it is not the same");
  app.add_option(
         "--by", o.syscalls.by,
         "What is compared: order (call by call, of each task), counts (how often each was made), names "
         "(which were made at all)")
      ->check(CLI::IsMember({"order", "counts", "names"}))
      ->capture_default_str();
  app.add_option("--ignore", o.syscalls.ignored,
                 "Leave out these calls; futex, sched_yield, rt_sigreturn and restart_syscall always are")
      ->delimiter(',');
  app.add_option(
         "--mask", o.syscalls.masks,
         "What this regular expression matches in names of files is \"*\"; process numbers in /proc are, "
         "and the current folder is $PWD")
      ->allow_extra_args(false);
  app.add_option("--timeout", o.syscalls.timeout, "Seconds after which the program is ended")
      ->transform(seconds_of)
      ->check(at_least(0, true));
  app.footer(
      "Examples:\n  cgp syscalls -- ./program\n  cgp syscalls --save golden.json -- ./program\n"
      "  cgp syscalls --golden golden.json --mask '/tmp/[^/\"]*' -- ./program");
}

void declare_monitor(CLI::App& app, ProfilerOptions& o) {
  add_command(app, o.monitor.command, "The program and its arguments, after --");
  app.add_option("--interval", o.monitor.interval, "Seconds between lines")->capture_default_str();
  app.add_option(
         "--window", o.monitor.window,
         "Milliseconds of each interval that are recorded; between them the recorder is not there. 0: all")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_option("--duration", o.monitor.duration, "Seconds after which the program is ended")
      ->transform(seconds_of)
      ->check(at_least(0, true));
  app.footer("Example:\n  cgp monitor --interval 5 -- python3 serve.py");
}

void declare_tui(CLI::App& app, ProfilerOptions& o) {
  app.add_option("FILES", o.tui.files,
                 "Saved profiles, and contracts (.yaml) that are checked against the last");
  app.add_option("--dump", o.tui.dump,
                 "Print one tab and end: roofline, timeline, kernel, compare, contract");
  app.add_option("--width", o.tui.width, "Columns of --dump");
  app.add_option("--height", o.tui.height, "Lines of --dump");
  app.footer("Examples:\n  cgp tui a.json b.json rows.yaml\n  cgp tui a.json --dump kernel --width 100");
}

void declare_metrics(CLI::App& app, ProfilerOptions& o) {
  app.add_flag("--markdown", o.metrics.markdown, "As docs/metrics.md");
  app.add_flag("--schema", o.metrics.schema, "JSON Schema of a profile");
  app.footer("Examples:\n  cgp metrics\n  cgp metrics --schema > profile.schema.json");
}

void declare_import(CLI::App& app, ProfilerOptions& o) {
  app.add_option("FILE", o.import.file,
                 "ncu: .ncu-rep, or CSV of --page raw, details, source; nsys: .sqlite, .nsys-rep, or CSV of "
                 "cuda_gpu_trace; events of libcgp_inject.so");
  app.add_option("--kernel", o.import.kernel, "Only kernels whose name contains this");
  app.add_option("--save", o.import.save, "Write it as a profile")->check(writable());
  app.footer(
      "Examples:\n  cgp import report.ncu-rep --save report.json\n  cgp report report.ncu-rep "
      "trace.sqlite -o report.html");
}

void declare_self_check(CLI::App& app, ProfilerOptions& o) {
  app.add_option("ROWS", o.self_check.rows, "Ids of the catalogue, or how they begin: FALS-05, MMA");
  app.add_flag("--list", o.self_check.list, "Name the rows and what decides them, without running anything");
  app.add_flag("--quick", o.self_check.quick, "Without those that take more than a few seconds");
  app.footer(
      "Each check then gets a spoiled observation, which it must refuse; HOLLOW: it accepted it.\nExit code "
      "1: a claim is refuted or its check is hollow.\n\nExamples:\n  cgp self-check\n  cgp self-check 05 MMA "
      "--json");
}

}  // namespace

const std::vector<ProfilerCommand>& profiler_commands() {
  static const std::vector<ProfilerCommand> table = {
      {"profile", "Measure a kernel or a program in depth", declare_profile,
       [](const Context& x, const ProfilerOptions& o) { return profile(x, o.profile); }},
      {"time", "Time a kernel or a program until the time is known", declare_time,
       [](const Context& x, const ProfilerOptions& o) { return time_command(x, o.time); }},
      {"compete", "Programs that do the same work, ranked", declare_compete,
       [](const Context& x, const ProfilerOptions& o) { return compete(x, o.compete); }},
      {"diff", "What changed between two profiles, commits or programs", declare_diff,
       [](const Context& x, const ProfilerOptions& o) { return diff(x, o.diff); }},
      {"baseline", "Saved profiles, their history, the noise of this machine", declare_baseline,
       [](const Context& x, const ProfilerOptions& o) { return baseline(x, o.baseline); }},
      {"trace", "The timeline of a program on the GPU", declare_trace,
       [](const Context& x, const ProfilerOptions& o) { return trace(x, o.trace); }},
      {"contract", "Promises about performance, verified", declare_contract,
       [](const Context& x, const ProfilerOptions& o) { return contract(x, o.contract); }},
      {"roofline", "Ceilings of a processor or GPU, with kernels as points", declare_roofline,
       [](const Context& x, const ProfilerOptions& o) { return roofline(x, o.roofline); }},
      {"report", "Profiles as one HTML file", declare_report,
       [](const Context& x, const ProfilerOptions& o) { return report(x, o.report); }},
      {"lint", "SIMD accesses that may fault", declare_lint,
       [](const Context& x, const ProfilerOptions& o) { return lint(x, o.lint); }},
      {"memcheck", "Memory errors of a program, on the processor or the GPU", declare_memcheck,
       [](const Context& x, const ProfilerOptions& o) { return memcheck(x, o.memcheck); }},
      {"syscalls", "System calls of a program, compared with a golden record", declare_syscalls,
       [](const Context& x, const ProfilerOptions& o) { return syscalls(x, o.syscalls); }},
      {"monitor", "Watch what a program does on the GPU", declare_monitor,
       [](const Context& x, const ProfilerOptions& o) { return monitor(x, o.monitor); }},
      {"tui", "Profiles in a terminal: five tabs", declare_tui,
       [](const Context& x, const ProfilerOptions& o) { return tui(x, o.tui); }},
      {"self-check", "Claims of the catalogue, and whether they hold here", declare_self_check,
       [](const Context& x, const ProfilerOptions& o) { return self_check(x, o.self_check); }},
      {"falsify", "The same as self-check", declare_self_check,
       [](const Context& x, const ProfilerOptions& o) { return self_check(x, o.self_check); }},
      {"import", "Reports of ncu and nsys as profiles", declare_import,
       [](const Context& x, const ProfilerOptions& o) { return import_command(x, o.import); }},
      {"metrics", "Everything that can be collected", declare_metrics,
       [](const Context& x, const ProfilerOptions& o) { return metrics(x, o.metrics); }},
  };
  return table;
}

}  // namespace cgp::cli
