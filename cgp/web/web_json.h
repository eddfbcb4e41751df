// SPDX-License-Identifier: Apache-2.0
#pragma once
// What pages are made of: bytes as base64, recorded commands as JSON, data in a page.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/runtime/shader/recording.h"

namespace cgp::web {

std::string base64(const void* data, std::size_t n);
std::string base64(const std::vector<std::byte>& v);

/// {write, offset, data}, {copy, offset, from, from_offset, bytes} or {shader, grid, block, bindings}.
nlohmann::ordered_json json_of(const runtime::Recording::Command& c);
/// [{bytes, start}] and [{entry, wgsl}].
nlohmann::ordered_json json_of(const std::vector<runtime::Recording::Memory>& memory);
nlohmann::ordered_json json_of(const std::vector<shader::Shader>& shaders);
/// What a device must have for all of them: {threads, shared_bytes, storage_buffers}.
nlohmann::ordered_json needs_of(const std::vector<shader::Shader>& shaders);

/// `page` with `data` in the place of "@DATA@", spelled so that no script ends in it.
std::string with_data(std::string_view page, const nlohmann::ordered_json& data);

}  // namespace cgp::web
