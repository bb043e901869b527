#pragma once
#include "lockstep/prep/kgat/kg_raw.hpp"
#include "support/test.hpp"

namespace lockstep::test {

/// Parses three texts as the files train.txt, test.txt and kg_final.txt.
inline prep::KgSet parse_kg(const std::string& train, const std::string& test, const std::string& kg,
                            const prep::KgRules& rules = {}, std::vector<prep::KgFinding>* findings = nullptr) {
  std::vector<prep::KgFinding> unused;
  return prep::read_kg_text({"train.txt", train}, {"test.txt", test}, prep::KgText{"kg_final.txt", kg}, rules,
                            findings != nullptr ? *findings : unused);
}

/// The same with its graph.
inline prep::KgSet build_kg(const std::string& train, const std::string& test, const std::string& kg,
                            const prep::KgRules& rules = {}) {
  auto set = parse_kg(train, test, kg, rules);
  set.name = "test";
  set.ckg = prep::build_ckg(set.sizes, set.train, set.triples, prep::SymmetricForm::sound);
  return set;
}

}  // namespace lockstep::test
