package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hutch"
	"hutch/internal/audit"
)

// Answers counts the answers of models.
type Answers struct {
	took   *prometheus.HistogramVec
	tokens *prometheus.CounterVec
	cost   prometheus.Counter
}

// NewAnswers returns Answers without any counts.
func NewAnswers() *Answers {
	a := &Answers{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hutch_model_answer_duration_seconds", Help: "How long answers of the model took, by result.", Buckets: buckets,
		}, []string{"result"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hutch_model_tokens_total", Help: "Tokens of the model, by direction.",
		}, []string{"direction"}),
		cost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hutch_model_cost_total", Help: "Cost of the model's answers, by the configured prices.",
		}),
	}
	a.tokens.WithLabelValues("input")
	a.tokens.WithLabelValues("output")
	return a
}

// Answered counts an answer.
func (a *Answers) Answered(took time.Duration, u hutch.ModelUsage, err error) {
	a.took.WithLabelValues(audit.ResultOf(err)).Observe(took.Seconds())
	a.tokens.WithLabelValues("input").Add(float64(u.InputTokens))
	a.tokens.WithLabelValues("output").Add(float64(u.OutputTokens))
	if u.Cost != nil {
		a.cost.Add(*u.Cost)
	}
}
