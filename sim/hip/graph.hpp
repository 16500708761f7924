#pragma once
#include "hip/work.hpp"

struct hipGraphNode {
  hipGraphNodeType type = hipGraphNodeTypeEmpty;
  fusewire::sim::work what;
  std::vector<hipGraphNode_t> after;
  ihipGraph* owner = nullptr;
};

struct ihipGraph {
  std::vector<std::unique_ptr<hipGraphNode>> nodes;
  hipGraphNode* add(hipGraphNodeType, fusewire::sim::work, std::vector<hipGraphNode_t> after);
  /// In an order that respects the edges; null when they form a cycle.
  std::shared_ptr<fusewire::sim::work_list> flatten(std::vector<hipGraphNode*>* order = nullptr) const;
};

struct hipGraphExec {
  std::shared_ptr<fusewire::sim::work_list> nodes;
  std::vector<hipGraphNode*> order;  // the nodes of the graph it was made from
  std::vector<hipGraphNodeType> types;
};
