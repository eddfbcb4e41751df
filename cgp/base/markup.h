// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace cgp::text {

/// For HTML and XML, in text and in attributes: & < > " ' as &amp; &lt; &gt; &#34; &#39;, which is how Jinja writes them.
std::string escape_markup(std::string_view s);

}  // namespace cgp::text
