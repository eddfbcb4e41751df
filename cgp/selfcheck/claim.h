// SPDX-License-Identifier: Apache-2.0
#pragma once
// Claims of the catalogue (FALS rows) that this program can try to refute on the machine it runs on. A claim
// is observed (commands of cgp are run, kernels are emulated, loops are timed), the observation is judged,
// and then a spoiled copy of the observation is judged too: an oracle that accepts that one cannot fail, and
// says so.
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cgp::selfcheck {

using nlohmann::json;

/// Thrown by observe(): the claim cannot be decided here, and what it would need.
struct NotHere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Claim {
  std::string id;      ///< "FALS-010"
  std::string text;    ///< what is claimed, with its bound
  std::string oracle;  ///< what decides it
  bool gpu = false, slow = false;
  std::function<json()> observe;
  std::function<std::string(const json&)>
      refute;                        ///< why the observation refutes the claim; empty: it does not
  std::function<void(json&)> spoil;  ///< makes of an observation one that refutes the claim
};

/// A row that no oracle of this program decides.
struct Undecided {
  std::string id, why;
};

void add_tool_claims(std::vector<Claim>& out);    ///< commands: doctor, diff, compete, contract, roofline
void add_cpu_claims(std::vector<Claim>& out);     ///< loops and threads of this processor
void add_kernel_claims(std::vector<Claim>& out);  ///< kernels and planted defects on the emulator, PTX
void add_gpu_claims(std::vector<Claim>& out);
void add_loading_claims(std::vector<Claim>& out);  ///< compiled, loaded and allocated when
void add_simd_claims(std::vector<Claim>& out);     ///< kernels of this processor, profile quant
/// What square roots, reciprocals and products on this processor leave in memory that was poisoned before:
/// elements that differ between the poisons, and elements that are not small and finite.
json poisoned_results();
/// All of them, by id.
const std::vector<Claim>& claims();
const std::vector<Undecided>& undecided();

enum class Outcome { pass, fail, hollow, skip };
struct Verdict {
  const Claim* claim = nullptr;
  Outcome outcome = Outcome::skip;
  std::string why;  ///< of everything but pass
  json seen;        ///< what was observed
  double seconds = 0;
};
/// Observes, judges, spoils and judges again. Throws nothing: an error of the observed thing refutes the
/// claim.
Verdict decide(const Claim& claim);
std::string_view name(Outcome outcome);

/// This program with other arguments: {"code", "out", "err", "seconds", "json"} (null when it printed none).
/// Environment as measure::ProcessOptions has it.
json run_self(const std::vector<std::string>& arguments,
              const std::vector<std::pair<std::string, std::string>>& environment = {});
/// What such a run printed as JSON; throws with how it ended where that is none.
const json& answer(const json& run);
/// A folder of this process that is removed at its end.
const std::string& scratch();
/// Whether a CUDA device can be opened here.
bool has_gpu();

}  // namespace cgp::selfcheck
