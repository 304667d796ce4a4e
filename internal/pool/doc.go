// Package pool decides how many instances of which kind wait for callers, and gives each of them to one caller.
//
// A pool knows kinds and demand; it makes nothing itself. Its keeper asks [Pool.Lacks] which kind to make next, makes
// an instance and adds it with [Pool.Put]; asks [Pool.Surplus] which instances to free; and checks again when
// [Pool.Changed] has a value. Callers take instances with [Pool.Take], which is also how the pool learns the demand.
//
// The pool follows demand: it wants as many of a kind as callers took in the largest burst of the last ten minutes. A
// kind that was requested only once is not wanted.
package pool
