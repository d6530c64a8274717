// The operators' formulas in double: those of op_tests/causal_conv1d.go, in C++.
#pragma once

#include <math.h>

#include <vector>

// Row is one channel of one batch entry. Positions begin at -(width-1), the oldest value of the initial state.
struct Row {
  std::vector<double> x;        // from position -(width-1) on; without an initial state those values are 0 and are multiplied like others
  std::vector<double> weight;
  std::vector<int> seq;         // empty: one sequence
  std::vector<double> dout, dfinal;  // backward; dfinal may be empty
  double bias = 0;
  bool silu = false;

  int width() const { return int(weight.size()); }
  int halo() const { return width() - 1; }
  int seqlen() const { return int(x.size()) - halo(); }
  bool padding(int t) const { return !seq.empty() && seq[t] < 0; }
  // visible reports whether position u <= t is visible to position t.
  bool visible(int t, int u) const { return seq.empty() || (u >= 0 && seq[t] >= 0 && seq[t] == seq[u]); }

  double sum(int t) const {
    double p = bias;
    for (int k = 0; k < width(); k++)
      if (visible(t, t - halo() + k)) p += weight[k] * x[t + k];
    return p;
  }
  static double sigmoid(double p) { return 1 / (1 + exp(-p)); }

  double out(int t) const {
    if (padding(t)) return 0;
    const double p = sum(t);
    return silu ? p * sigmoid(p) : p;
  }
  double final(int j) const { return x[seqlen() + j]; }

  std::vector<double> gradients() const {
    std::vector<double> g(seqlen());
    for (int t = 0; t < seqlen(); t++) {
      const double p = silu && !padding(t) ? sum(t) : 0, s = sigmoid(p);
      g[t] = padding(t) ? 0 : silu ? dout[t] * (s * (1 + p * (1 - s))) : dout[t];
    }
    return g;
  }
  // input_gradient is dx[u], or dinitial for u < 0.
  double input_gradient(const std::vector<double>& g, int u) const {
    double sum = 0;
    for (int k = 0; k < width(); k++) {
      const int t = u + k;
      if (t >= 0 && t < seqlen() && visible(t, u)) sum += weight[halo() - k] * g[t];
    }
    const int j = u - (seqlen() - halo());
    return j >= 0 && !dfinal.empty() ? sum + dfinal[j] : sum;
  }
  void add_weight_gradients(const std::vector<double>& g, std::vector<double>* dweight, double* dbias) const {
    for (int t = 0; t < seqlen(); t++) {
      *dbias += g[t];
      for (int k = 0; k < width(); k++)
        if (visible(t, t - halo() + k)) (*dweight)[k] += g[t] * x[t + k];
    }
  }
};
