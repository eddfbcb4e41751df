// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where programs are.
#include <string>
#include <vector>

namespace cgp {

/// Full path of a program: as given if it contains a slash, else along PATH, then in `more_folders`. Empty:
/// there is none.
std::string find_program(const std::string& name, const std::vector<std::string>& more_folders = {});
/// One of the CUDA toolkit: what the variable of the environment says, where one is named and set, else along
/// PATH, in $CUDA_HOME/bin, $CUDA_PATH/bin and /usr/local/cuda/bin.
std::string find_cuda_program(const std::string& name, const char* variable = nullptr);
inline std::string find_ptxas() { return find_cuda_program("ptxas", "CGP_PTXAS"); }

}  // namespace cgp
