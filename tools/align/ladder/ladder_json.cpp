#include <nlohmann/json.hpp>

#include "assay/align/ladder/ladder_lines.h"
#include "assay/align/ladder/ladder_report.h"
#include "assay/compare/report/json_diagnosis.h"
#include "assay/compare/report/json_number.h"
#include "assay/compare/result/version.h"

namespace assay::align {
namespace {

using Json = nlohmann::ordered_json;

Json phase(const PhaseResult& p) {
  return {{"compared", p.compared},
          {"failed", p.failed},
          {"inherited", p.inherited},
          {"not_compared", p.not_compared},
          {"worst", json_number(p.worst)}};
}

Json checked(const ConfigurationCheck& c) {
  return {{"what", c.what}, {"passed", c.passed}, {"accepted", c.accepted}, {"found", c.found}};
}

Json stage(const RungResult& r) {
  const Work& w = r.rung.work;
  Json j = {{"name", r.rung.name},
            {"kind", name(r.rung.kind)},
            {"ranks", r.rung.parallel.ranks()},
            {"parallel", to_string(r.rung.parallel)},
            {"steps", w.steps},
            {"micro_batches", w.micro_batches},
            {"sequences", w.sequences},
            {"length", w.length},
            {"state", name(r.state)},
            {"reason", r.reason},
            {"rule", r.rule},
            {"from_cache", r.from_cache},
            {"pinned", r.pinned},
            {"seconds", r.seconds},
            {"phases", Json::object()},
            {"configuration", Json::array()},
            {"notes", r.notes},
            {"subject", r.subject.string()},
            {"reference", r.reference.string()},
            {"page", r.page.string()}};
  for (std::size_t k = 0; k < r.phases.size(); ++k)
    j["phases"][std::string(phase_names[k])] = phase(r.phases[k]);
  for (const ConfigurationCheck& c : r.configuration) j["configuration"].push_back(checked(c));
  return j;
}

Json divergence_object(const Divergence& d, const RungResult& r) {
  Json j = {{"strategies", std::vector<std::string>(d.strategies.begin(), d.strategies.end())},
            {"stage", r.rung.name},
            {"smallest", {{"fails", to_string(d.strategies)}, {"passes", d.passes}}},
            {"phase", d.phase},
            {"step", d.step},
            {"micro_batch", d.micro_batch},
            {"module", d.module},
            {"tensor", d.tensor},
            {"cause", d.cause},
            {"diagnosis", d.diagnosis ? json_diagnosis(*d.diagnosis) : Json(nullptr)},
            {"origin", d.origin},
            {"collectives", Json::array()},
            {"others", Json::array()}};
  for (const Traffic& t : d.behind)
    j["collectives"].push_back({{"what", t.what},
                                {"axis", name(t.axis)},
                                {"module", t.module},
                                {"backward", t.backward},
                                {"groups", t.groups}});
  for (const std::size_t at : d.others) {
    const Finding& f = r.report->findings[at];
    j["others"].push_back(
        {{"name", f.name}, {"cause", f.diagnoses.empty() ? f.reason : sentence(f.diagnoses.front())}});
  }
  return j;
}

}  // namespace

std::string to_json(const LadderResult& result, const LadderHead& head) {
  Json j = {{"assay", version},
            {"schema", "align/2"},
            {"command", head.command},
            {"model", head.model},
            {"target", head.target},
            {"precision", head.precision},
            {"subject", head.subject},
            {"reference", head.reference},
            {"exit_status", result.exit_status()},
            {"verdict", result.verdict()},
            {"seconds", result.seconds},
            {"configuration", Json::array()},
            {"stages", Json::array()},
            {"divergences", Json::array()}};
  for (const ConfigurationCheck& c : result.files) j["configuration"].push_back(checked(c));
  for (const RungResult& r : result.rungs) j["stages"].push_back(stage(r));
  for (std::size_t k = 0; k < result.divergences.size(); ++k)
    j["divergences"].push_back(divergence_object(result.divergences[k], result.rungs[result.failing[k]]));
  // In ASCII, so that no name can move a terminal's cursor.
  return j.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace assay::align
