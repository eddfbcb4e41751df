// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/view/report_html.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cgp/base/markup.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/stats.h"
#include "cgp/profile/roofline/peaks.h"
#include "cgp/profile/roofline/prediction.h"
#include "cgp/profile/roofline/roofline_points.h"
#include "cgp/profile/sampling/annotate.h"
#include "cgp/profile/sampling/cpu_compare.h"
#include "cgp/profile/timeline/timeline_export.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"

namespace cgp::profile {
namespace {

using fmt::format;
using measure::Metric;

constexpr ReportColour kColours[] = {
    {"ink", "#1b1b1b", "#e6e6e6", true},   {"paper", "#ffffff", "#161616", false},
    {"quiet", "#5a5a5a", "#aaaaaa", true}, {"rule", "#dddddd", "#444444", false},
    {"mark", "#8a4b00", "#f0b060", true},  {"hot", "#fde2c4", "#4a2a08", false},
};

std::string style() {
  const auto variables = [](const char* ReportColour::*value) {
    std::string out;
    for (const auto& c : kColours) out += format("--{}:{};", c.name, c.*value);
    return out;
  };
  return ":root{color-scheme:light dark;" + variables(&ReportColour::light) +
         "}@media(prefers-color-scheme:dark){:root{" + variables(&ReportColour::dark) +
         "}svg:not(.flame){background:#f7f7f7;color:#1b1b1b}}"
         "body{font:15px/1.5 system-ui,sans-serif;max-width:1080px;margin:2rem auto;padding:0 "
         "1rem;color:var(--ink);"
         "background:var(--paper);overflow-wrap:anywhere}"
         "h1{font-size:1.6rem}h2{font-size:1.25rem;border-bottom:1px solid var(--rule);margin-top:2.2rem}"
         "h3{font-size:1rem;margin-bottom:.3rem}"
         "table{border-collapse:collapse;margin:.5rem 0;display:block;max-width:100%;overflow-x:auto}"
         "td,th{padding:.15rem .7rem;border-bottom:1px solid "
         "var(--rule);text-align:right;font-variant-numeric:tabular-nums;"
         "white-space:nowrap}td.s{white-space:normal;min-width:14rem}"
         "td:first-child,th:first-child{text-align:left}.l{text-align:left}svg{max-width:100%;height:auto}"
         "code,pre{font:13px/1.35 ui-monospace,monospace}.s{color:var(--quiet);font-size:.85rem}"
         ".w{border-left:4px solid var(--mark);padding:.1rem .8rem;margin:.5rem 0}details{margin:.6rem 0}"
         "summary{cursor:pointer}input{font:inherit;padding:.2rem .5rem;width:18rem}"
         ".head{font-weight:600;color:var(--mark)}"
         "pre.code{overflow-x:auto;border:1px solid var(--rule);padding:.4rem}pre.code "
         "i{font-style:normal;color:var(--quiet)}"
         "pre.code b{display:block;font-weight:inherit;background:var(--hot)}"
         "svg.timeline{overflow:hidden}svg:focus-visible,g:focus-visible{outline:2px solid var(--mark)}";
}
constexpr const char* kScript =
    "document.querySelectorAll('input.f').forEach(i=>i.oninput=()=>{const q=i.value.toLowerCase();"
    "i.parentNode.querySelectorAll('tbody "
    "tr').forEach(r=>r.hidden=!r.textContent.toLowerCase().includes(q))});"
    // A box of a flame graph that is clicked takes the whole width, its callers with it. Escape shows all.
    "document.querySelectorAll('svg.flame').forEach(s=>{const all=[...s.querySelectorAll('g')].map(g=>{const "
    "r=g.querySelector('rect');return{g,r,x:+r.getAttribute('x')-10,w:+r.getAttribute('width')+.4,y:+r."
    "getAttribute('y'),name:g.querySelector('title').textContent.split(': ')[0]}});all.forEach(c=>{c.g.style."
    "cursor='zoom-in';c.g.onclick=()=>{const k=1180/c.w;all.forEach(b=>{const "
    "over=b.y>c.y&&b.x<=c.x+.5&&b.x+b.w>=c.x+c.w-.5,x=over?0:(b.x-c.x)*k,w=over?1180:b.w*k;const "
    "out=x<-.5||x+w>1181;b.g.style.display=out?'none':'';if(out)return;b.r.setAttribute('x',10+x);b.r."
    "setAttribute('width',Math.max(.3,w-.4));let "
    "t=b.g.querySelector('text');if(!t){t=document.createElementNS("
    "'http:/'+'/www.w3.org/2000/"
    "svg','text');t.setAttribute('y',b.y+13);t.setAttribute('fill','#1b1b1b');b.g.append(t)}t.setAttribute('"
    "x',13+x);"
    "const "
    "n=Math.floor((w-6)/6.6);t.textContent=n<4?'':b.name.length>n?b.name.slice(0,n-2)+'..':b.name})}});"
    "s.addEventListener('keydown',e=>{const g=e.target.closest('g');if((e.key=='Enter'||e.key==' "
    "')&&g)g.onclick();"
    "else if(e.key=='Escape')all[0].g.onclick();else return;e.preventDefault()})});"
    // A timeline: the wheel, + and - zoom, dragging and the arrows move, 0 and Escape show all.
    "document.querySelectorAll('svg.timeline').forEach(s=>{const "
    "all=[...s.querySelectorAll('rect')].map(r=>({r,x:+r.getAttribute('x')-145,w:+r.getAttribute('width')})),"
    "full=s.viewBox.baseVal.width-150;let k=1,o=0;const show=()=>{k=Math.min(1e5,Math.max(1,k));"
    "o=Math.min(full-full/k,Math.max(0,o));all.forEach(b=>{const "
    "x=Math.max(0,(b.x-o)*k),e=Math.min(full,(b.x+b.w-o)*k);"
    "b.r.style.display=e<0||x>full?'none':'';b.r.setAttribute('x',145+x);b.r.setAttribute('width',Math.max(."
    "6,e-x))})},"
    "zoom=(f,at)=>{o+=at/k-at/(k*f);k=k*f;if(k<1)k=1;show()},place=e=>{const "
    "b=s.getBoundingClientRect();return "
    "Math.max(0,(e.clientX-b.left)*s.viewBox.baseVal.width/b.width-145)};show();"
    "s.addEventListener('wheel',e=>{if(!e.ctrlKey&&k==1&&e.deltaY>0)return;e.preventDefault();zoom(e.deltaY<"
    "0?1.25:.8,place(e))},"
    "{passive:false});let "
    "from=null;s.onpointerdown=e=>{from=place(e)};s.onpointermove=e=>{if(from==null||!e.buttons)return;"
    "const p=place(e);o+=(from-p)/k;from=p;show()};s.onkeydown=e=>{const step=full/k/5;"
    "if(e.key=='+'||e.key=='=')zoom(1.5,full/2);else if(e.key=='-')zoom(1/1.5,full/2);else "
    "if(e.key=='ArrowLeft')o-=step;"
    "else if(e.key=='ArrowRight')o+=step;else if(e.key=='0'||e.key=='Escape')k=1,o=0;else "
    "return;e.preventDefault();show()}});";

/// Every sample as a stroke over its empirical distribution.
std::string distribution_svg(const Samples& s) {
  auto v = s.values;
  if (v.empty()) return {};
  std::sort(v.begin(), v.end());
  const double low = v.front(), high = std::max(v.back(), low * 1.000001), width = 640, left = 40;
  const auto x = [&](double t) { return left + (t - low) / (high - low) * width; };
  std::string out =
      "<svg viewBox='0 0 720 130' width='720' font-size='11' font-family='system-ui,sans-serif' role='img'>";
  std::string line;
  for (std::size_t i = 0; i < v.size(); ++i) {
    line += format("{}{:.1f},{:.1f}", line.empty() ? "M" : "L", x(v[i]),
                   80 - 70.0 * double(i + 1) / double(v.size()));
    if (v.size() <= 2000)
      out +=
          format("<line x1='{0:.1f}' x2='{0:.1f}' y1='86' y2='100' stroke='#1a6fb5' stroke-opacity='.35'/>",
                 x(v[i]));
  }
  const double middle = measure::median(v);
  out += format("<path d='{}' fill='none' stroke='#1a6fb5' stroke-width='1.5'/>", line);
  out += format(
      "<line x1='{0:.1f}' x2='{0:.1f}' y1='6' y2='100' stroke='#b5411a'/><text x='{0:.1f}' y='126' "
      "text-anchor='middle' fill='#b5411a'>median {1}</text>",
      x(middle), time_text(middle));
  out += format(
      "<text x='{}' y='114'>{}</text><text x='{}' y='114' text-anchor='end'>{}</text><text x='4' y='14'>100 "
      "%</text><text x='4' y='84'>0</text></svg>",
      left, time_text(low), left + width, time_text(high));
  return out;
}

std::string kernels_html(const Document& d) {
  if (d.kernels.empty()) return {};
  double total = 0;
  for (const auto& k : d.kernels) total += k.total_us();
  std::string out =
      "<h3>Kernels</h3><input class='f' "
      "placeholder='filter'><table><thead><tr><th>kernel</th><th>share</th><th>launches</th><th>median</"
      "th><th>total</th><th>registers</th><th>load "
      "eff.</th><th>occupancy</th><th>tensor</th></tr></thead><tbody>";
  for (const auto& k : d.kernels) {
    const auto cell = [&](Metric m) {
      return k.metrics.has(m) ? number_text(k.metrics[m].number()) + " %" : std::string("–");
    };
    out += format(
        "<tr><td "
        "title='{}'><code>{}</code></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</"
        "td><td>{}</td><td>{}</td></tr>",
        text::escape_markup(k.name), text::escape_markup(fitted(short_name(k.name), 60)),
        total > 0 ? format("{:.1f} %", 100 * k.total_us() / total) : "–", k.launches,
        k.us.empty() ? "–" : time_text(measure::median(k.us)), k.us.empty() ? "–" : time_text(k.total_us()),
        k.registers ? std::to_string(k.registers) : "–", cell(Metric::global_load_efficiency_pct),
        cell(Metric::achieved_occupancy_pct), cell(Metric::tensor_core_utilization_pct));
  }
  return out + "</tbody></table>";
}

/// Predicted beside counted, where a kernel ran on the emulator.
std::string accesses_html(const Document& d) {
  std::string rows;
  for (const auto& c : accesses_of(d)) {
    if (c.agreement == Agreement::never_ran) continue;
    rows += format(
        "<tr><td><code title='{}'>{}</code></td><td>{}</td><td>{}</td><td>{}</td><td class='l'>{}</td><td "
        "class='l'>{}</td><td>{}</td><td class='l s'>{}</td></tr>",
        text::escape_markup(c.text), text::escape_markup(c.opcode), predicted_text(c), number_text(c.counted),
        number_text(c.needed), c.shared ? "passes" : "sectors", name(c.agreement), c.requests,
        text::escape_markup(fitted(c.why, 90)));
  }
  if (rows.empty()) return {};
  return "<h3>Memory accesses: predicted from the addresses, and counted</h3><input class='f' "
         "placeholder='filter'><table><thead><tr><th>access</th><th>predicted</th><th>counted</"
         "th><th>needed</"
         "th><th class='l'>unit</th><th class='l'></th><th>times</th><th "
         "class='l'>why</th></tr></thead><tbody>" +
         rows + "</tbody></table>";
}

std::string metrics_html(const Document& d) {
  std::string present, absent;
  std::size_t have = 0;
  for (const auto& info : measure::metrics()) {
    const auto& r = d.metrics[info.id];
    if (!r.present()) {
      absent += format("<tr><td><code>{}</code></td><td class='l'>{}</td></tr>", info.name,
                       text::escape_markup(r.why_absent));
      continue;
    }
    ++have;
    std::string value;
    if (const auto* v = std::get_if<double>(&*r.held))
      value = info.type == measure::MetricType::count ? text::grouped(std::uint64_t(std::max(0.0, *v + 0.5)))
                                                      : number_text(*v);
    else if (const auto* b = std::get_if<bool>(&*r.held))
      value = *b ? "yes" : "no";
    else if (const auto* s = std::get_if<std::string>(&*r.held))
      value = *s;
    else
      value = spec::dumped(to_json(d.metrics)[std::string(info.name)]["value"]);
    present += format(
        "<tr><td><code>{}</code></td><td>{}</td><td class='l'>{}</td><td class='l'>{}</td><td class='l "
        "s'>{}</td></tr>",
        info.name, text::escape_markup(value), info.unit, measure::name(r.source),
        text::escape_markup(r.from));
  }
  if (have == 0) return {};
  return format(
      "<details open><summary>{} metrics with their sources</summary><input class='f' "
      "placeholder='filter'><table><thead><tr><th>metric</th><th>value</th><th class='l'>unit</th><th "
      "class='l'>source</th><th class='l'>from</th></tr></thead><tbody>{}</tbody></table></details>"
      "<details><summary>{} metrics are absent, and why</summary><table><tbody>{}</tbody></table></details>",
      have, present, measure::metrics().size() - have, absent);
}

/// The ceilings of a roofline, and where they come from.
std::string ceilings_html(const Document& d) {
  const auto lines = rows_in(d.more.value("roofline", nlohmann::ordered_json()), "lines");
  if (lines.empty()) return {};
  std::string rows;
  for (const auto& l : lines) {
    const double value = number_in(l, "value");
    const bool there = !std::isnan(value), tera = !l.value("bandwidth", false) && value >= 1000;
    rows += format(
        "<tr><td>{}</td><td>{}</td><td class='l'>{}</td><td class='l'>{}</td><td class='l s'>{}</td></tr>",
        text::escape_markup(l.value("name", "")), there ? number_text(value / (tera ? 1000 : 1)) : "–",
        tera ? "TFLOP/s" : l.value("unit", ""), l.value("source", ""),
        text::escape_markup(there ? l.value("how", "") : l.value("absent", "")));
  }
  return "<table><thead><tr><th>ceiling</th><th>value</th><th class='l'>unit</th><th "
         "class='l'>source</th><th "
         "class='l'>how</th></tr></thead><tbody>" +
         rows + "</tbody></table>";
}

std::string headline_html(const Headline& h) {
  if (h.bound_by.empty()) return {};
  std::string out = format("<p class='head'>{}</p><ol>", text::escape_markup(h.bound_by));
  for (const auto& n : h.next) out += format("<li>{}</li>", text::escape_markup(n));
  return out + "</ol>";
}

/// Lines of source or machine code with their share of the function's samples; the hottest are marked.
std::string code_html(const nlohmann::ordered_json& f, const char* part, const char* key, const char* title) {
  if (!f.contains(part)) return {};
  const auto text_in = [](const nlohmann::ordered_json& j, const char* k) {
    return j.contains(k) && j[k].is_string() ? j[k].get<std::string>() : std::string();
  };
  const auto rows = rows_in(f[part], "rows");
  if (rows.empty())
    return format("<p class='s'>{}: {}</p>", title, text::escape_markup(text_in(f[part], "absent")));
  const double self = number_in(f, "self");
  std::string out;
  for (const auto& r : rows) {
    const double n = number_in(r, "samples"), share = n > 0 && self > 0 ? 100 * n / self : 0,
                 at = number_in(r, key);
    const std::string line =
        format("{:>7}<i> {:>8} </i>{}", share > 0 ? format("{:.1f} %", share) : "",
               std::string_view(key) == "line" ? format("{:.0f}", at)
                                               : format("{:x}", std::uint64_t(at > 0 ? at : 0)),
               text::escape_markup(text_in(r, "text")));
    out += share >= 5 ? "<b>" + line + "</b>" : line + "\n";
  }
  const std::string file = text_in(f[part], "file");
  return format("<h4>{}{}</h4><pre class='code' tabindex='0'>{}</pre>", title,
                file.empty() ? "" : " " + text::escape_markup(file), out);
}

/// Where the processor's time went: what bounds it, the flame graph, the functions, their lines.
std::string cpu_html(const Document& d) {
  const auto& section = d.more["cpu_samples"];
  const auto functions = rows_in(section, "functions");
  if (functions.empty()) return {};
  const auto word = [](const nlohmann::ordered_json& j, const char* key) {
    return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
  };
  std::string out =
      "<h3>Processor time</h3>" + headline_html(headline_of(section, number_in(section, "wall_s"))) +
      "<p class='s'>A box is as wide as its samples, callers below. Click or Enter: a box takes the whole "
      "width; Escape: "
      "all.</p>" +
      cpu_flamegraph_svg(section, d.name) +
      (section.contains("waits") ? cpu_flamegraph_svg(section["waits"], d.name) : "") +
      (section.contains("launched") ? cpu_flamegraph_svg(section["launched"], d.name) : "") +
      "<input class='f' placeholder='filter'><table><thead><tr><th>function</th><th>self</th><th>with "
      "what it calls</th><th class='l'>in</th><th class='l'>hottest line</th></tr></thead><tbody>";
  const auto row = [&](const nlohmann::ordered_json& f, const std::string& in, const std::string& line) {
    out += format(
        "<tr><td title='{0}'><code>{1}</code></td><td>{2:.1f} %</td><td>{3:.1f} %</td><td "
        "class='l'>{4}</td><td "
        "class='l'>{5}</td></tr>",
        text::escape_markup(word(f, "name")), text::escape_markup(fitted(word(f, "name"), 70)),
        number_in(f, "self_pct"), number_in(f, "total_pct"), text::escape_markup(in),
        text::escape_markup(line));
  };
  for (const auto& f : rows_in(section, "python")) row(f, "Python", word(f, "file"));
  for (const auto& f : functions) {
    const auto lines = rows_in(f, "lines");
    row(f, word(f, "module"),
        lines.empty() ? "" : format("{}:{:.0f}", word(lines[0], "file"), number_in(lines[0], "line")));
  }
  out += "</tbody></table>";
  for (const auto& f : functions) {
    const std::string code =
        code_html(f, "source", "line", "source") +
        code_html(f, "assembly", "address", "machine code (a sample is one instruction late at times)");
    if (!code.empty())
      out += format("<details{}><summary>{:.1f} % <code>{}</code>, line by line</summary>{}</details>",
                    &f == &functions[0] ? " open" : "", number_in(f, "self_pct"),
                    text::escape_markup(fitted(word(f, "name"), 90)), code);
  }
  return out;
}

std::string document_html(const Document& d) {
  std::string out =
      format("<h2>{} <span class='s'>{}</span></h2><p class='s'>{} · {}</p>",
             text::escape_markup(fitted(d.name, 120)), d.kind, d.time, text::escape_markup(d.machine_key));
  const auto& m = d.metrics;
  if (m.has(Metric::wall_clock_time_us)) {
    out += format("<p><b>{}</b>", time_text(m[Metric::wall_clock_time_us].number()));
    if (m.has(Metric::ci_95_low_us))
      out += format(" [{}, {}]", time_text(m[Metric::ci_95_low_us].number()),
                    time_text(m[Metric::ci_95_high_us].number()));
    if (m.has(Metric::tflops)) out += format(" · {} TFLOP/s", number_text(m[Metric::tflops].number()));
    if (m.has(Metric::bandwidth_gbps))
      out += format(" · {} GB/s", number_text(m[Metric::bandwidth_gbps].number()));
    if (m.has(Metric::verdict)) out += format(" · {}", std::get<std::string>(*m[Metric::verdict].held));
    out += "</p>";
  }
  for (const auto& n : d.notes) out += format("<p class='s'>note: {}</p>", text::escape_markup(n));
  for (const auto& w : d.waste)
    out += format("<div class='w'><b>{:.0f} % {}: {}</b> {}<br>{}<br>try: {}</div>", w.percent, w.kind,
                  text::escape_markup(w.title), text::escape_markup(short_name(w.kernel)),
                  text::escape_markup(w.evidence), text::escape_markup(w.advice));
  for (const char* picture : {"roofline_svg", "timeline_svg"})
    if (d.more.contains(picture) && d.more[picture].is_string()) {
      out += d.more[picture].get<std::string>();
      if (out.find("class='timeline'") != out.npos)
        out += "<p class='s'>The wheel, + and - zoom; dragging and the arrows move; 0 shows all.</p>";
    }
  if (d.more.contains("cpu_samples")) out += cpu_html(d);
  for (const auto& s : d.samples)
    if (s.unit == "us" && s.values.size() > 1)
      out += format("<h3>{}: {} samples</h3>", text::escape_markup(s.name), s.values.size()) +
             distribution_svg(s);
  return out + ceilings_html(d) + kernels_html(d) + accesses_html(d) + metrics_html(d);
}

std::string summary_html(const std::vector<Document>& all) {
  std::string rows;
  for (const auto& d : all) {
    const auto& m = d.metrics;
    rows +=
        format("<tr><td>{}</td><td class='l'>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
               text::escape_markup(fitted(d.name, 70)), d.kind,
               m.has(Metric::wall_clock_time_us) ? time_text(m[Metric::wall_clock_time_us].number()) : "–",
               m.has(Metric::tflops) ? number_text(m[Metric::tflops].number()) : "–",
               m.has(Metric::bandwidth_gbps) ? number_text(m[Metric::bandwidth_gbps].number()) : "–",
               d.waste.size());
  }
  return "<table><thead><tr><th>profile</th><th "
         "class='l'>kind</th><th>time</th><th>TFLOP/s</th><th>GB/s</th><th>waste</th></tr></thead><tbody>" +
         rows + "</tbody></table>";
}

/// Profiles with an intensity, over the data sheet of their device.
std::string roofline_html(const std::vector<Document>& all) {
  Roofline r;
  for (const auto& d : all) {
    if (!d.machine.contains("device")) continue;
    const std::string device = d.machine["device"].value("name", "");
    const auto* peaks = device_peaks(device);
    if (!peaks) continue;
    if (r.lines.empty()) {
      r.title = device;
      r.lines = {{"HBM", true, peaks->memory_gbps, false},
                 {"bf16 tensor", false, peaks->bf16 * 1000, false},
                 {"fp32", false, peaks->fp32 * 1000, false}};
    }
    if (device == r.title)
      for (auto& p : roof_points(d)) r.points.push_back(std::move(p));
  }
  return r.points.empty() ? "" : "<h2>Roofline</h2>" + roofline_svg(r);
}

}  // namespace

std::span<const ReportColour> report_colours() { return kColours; }

std::string report_html(const std::vector<Document>& profiles, const std::string& title) {
  std::string html = format(
      "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
      "content='width=device-width'><title>{0}</title><style>{1}</style></head><body><h1>{0}</h1>",
      text::escape_markup(title), style());
  html += summary_html(profiles) + roofline_html(profiles);
  const Document* first = nullptr;  // whose processor time the others are compared with
  for (const auto& d : profiles) {
    if (!d.more.contains("cpu_samples")) continue;
    if (first)
      html += changes_html(first->more["cpu_samples"], d.more["cpu_samples"], first->name, d.name);
    else
      first = &d;
  }
  for (const auto& d : profiles) html += document_html(d);
  return html + format("<script>{}</script></body></html>\n", kScript);
}

}  // namespace cgp::profile
