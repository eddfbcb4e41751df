// SPDX-License-Identifier: Apache-2.0
#pragma once
// Contracts held against a saved profile, or against a kernel or program that is measured now.
#include <functional>
#include <string>
#include <vector>

#include "cgp/profile/contract/contract.h"

namespace cgp::profile {

struct ContractFile {
  std::string name, text;  ///< text empty: to be read
};

struct VerifyOptions {
  std::string profile;                   ///< a saved profile to judge; empty: measured now
  std::string baselines;                 ///< folder of the store
  std::vector<std::string> definitions;  ///< NAME=VALUE for ${NAME} in commands
  bool strict = false;                   ///< a key that is not known is a failure
  bool safety = false;              ///< kernels under all checks of the emulator, programs under valgrind
  bool fail_on_regression = false;  ///< compare with the baseline of the contract's name
};

/// Throws for a contract that cannot be read or measured. `step` hears what is going on.
ContractResult verify_contract(const ContractFile& source, const VerifyOptions& o,
                               const std::function<void(const std::string&)>& step);
/// Such an error is a failed check of this contract (`broken`) instead, not the end of the others.
ContractResult verify_or_fail(const ContractFile& source, const VerifyOptions& o,
                              const std::function<void(const std::string&)>& step);

}  // namespace cgp::profile
