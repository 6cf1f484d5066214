/* End of a step: sums, the latch, the commit over the blob, and the result for the host. Included
 * by bodies.h.
 *
 *   sums over the ranks -> latch -> statistics, clipping, the optimizers of worker/optim -> tell
 *
 * Arguments of the commit kernels: f[0] parameters, f[1] gradients, f[2] and f[3] optimizer state,
 * d[1] reduced sums followed by the samples, tensors [n[0]] sorted by offset, count: elements of
 * the blob. Items: blob elements.
 *
 * The latch decides once for all later kernels, so a step is committed completely or not at all. A
 * step is not committed if the host halted the training (sums may then be undefined, so the host
 * writes `go` before it aborts them), if it has no samples, if a gradient is not finite (in fp16
 * the loss scale is then too large), or if the loss is not finite. In the last case, no later step
 * counts. */

enum { STEP_STATISTIC_MEAN = 1 }; /* same value as GP_STATISTIC_MEAN */

/* Step header position after the sums. */
enum { STEP_SAMPLES = BODY_SUMS, STEP_STOP, STEP_PAUSE, STEP_SUMS };

BODY int step_commits(const gp_kernel_args *a)
{
    return a->kept->commit != 0;
}

BODY uint64_t step_now_ns(void)
{
#if defined(__NVCC__) && defined(__CUDA_ARCH__) /* tests define only __CUDA_ARCH__ */
    uint64_t now;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
#else
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* Take the time when a pass ends. One item. kind 0: forward pass; 1: backward pass; 2: backward
 * pass of the last call, which also writes the step header. */
BODY void body_stamp(const gp_kernel_args *a, uint32_t i)
{
    uint64_t now = step_now_ns();

    (void)i;
    if (a->kind == 0)
        a->kept->forward_ns += now - a->kept->mark_ns;
    else
        a->kept->backward_ns += now - a->kept->mark_ns;
    a->kept->mark_ns = now;
    if (a->kind != 2)
        return;
    a->d[1][STEP_SAMPLES] = (double)a->call->samples;
    a->d[1][STEP_STOP] = (double)a->call->stop;
    a->d[1][STEP_PAUSE] = (double)a->call->pause;
    *(volatile uint64_t *)&a->mail->computed = a->kept->steps + 1;
}

/* Decide whether the step is committed. One item. */
BODY void body_latch(const gp_kernel_args *a, uint32_t i)
{
    gp_kernel_kept *kept = a->kept;
    double weight = a->d[1][BODY_WEIGHT], loss = a->d[1][BODY_LOSS], t;
    uint32_t go = *(const volatile uint32_t *)&a->mail->go != 0 && !kept->bad;
    uint64_t now = step_now_ns();

    (void)i;
    kept->exchange_ns = now - kept->mark_ns;
    kept->mark_ns = now;
    kept->counts = go && (weight <= 0.0 || loss - loss == 0.0);
    kept->commit = kept->counts && weight > 0.0 && !(a->d[1][BODY_BAD] > 0.0);
    kept->bad = kept->bad || (go && !kept->counts);
    if (!kept->commit)
        return;
    t = (double)++kept->solved;
    kept->rule.learn_rate = a->call->learn_rate;
    kept->rule.correction = (float)(1.0 / (1.0 - pow(kept->rule.wide_decay, t)));
    kept->rule.squared_correction = (float)(1.0 / (1.0 - pow(kept->rule.wide_squared_decay, t)));
}

/* Write the result for the host and update the loss scale, which the next step (possibly launched
 * already) reads. One item; n[0] sums. */
BODY void body_tell(const gp_kernel_args *a, uint32_t i)
{
    gp_kernel_kept *kept = a->kept;
    uint64_t number = ++kept->steps;
    gp_kernel_reported *reported = &a->mail->reported[(number - 1) % GP_KERNEL_REPORTED];

    (void)i;
    for (uint32_t k = 0; k < a->n[0]; k++)
        reported->sums[k] = a->d[1][k];
    reported->forward_ns = kept->forward_ns;
    reported->backward_ns = kept->backward_ns;
    reported->exchange_ns = kept->exchange_ns;
    reported->commit_ns = step_now_ns() - kept->mark_ns;
    reported->loss_scale = kept->loss_scale;
    if (kept->counts && kept->loss_scale > 0.0)
        gp_loss_scale_move(&kept->loss_scale, &kept->loss_scale_good, &kept->rule.loss_scale,
                           a->d[1][BODY_BAD]);
    reported->counts = kept->counts;
    reported->commit = kept->commit;
#ifdef __CUDA_ARCH__
    __threadfence_system();
    *(volatile uint64_t *)&reported->number = number;
#else
    __atomic_store_n(&reported->number, number, __ATOMIC_RELEASE);
#endif
}

/* ---- commit ---- */

BODY const gp_kernel_tensor *tensor_of(const gp_kernel_args *a, uint32_t i)
{
    uint32_t low = 0, high = a->n[0];

    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;

        if (a->tensors[middle].offset <= i)
            low = middle;
        else
            high = middle;
    }
    return &a->tensors[low];
}

/* d[0] partial sums [tensor][chunk] of squared gradients. Items: (tensor, chunk). */
BODY void body_squares_part(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_tensor *t = &a->tensors[i / a->chunks];
    double sum = 0.0;

    for (uint64_t e = i % a->chunks; t->learns && e < t->count; e += a->chunks)
        sum += (double)a->f[1][t->offset + e] * (double)a->f[1][t->offset + e];
    a->d[0][i] = sum;
}

/* d[0] partial sums -> the sum for each tensor, stored after them; item n[0]: the sum over all
 * tensors. */
BODY void body_squares_sum(const gp_kernel_args *a, uint32_t i)
{
    uint64_t first = i == a->n[0] ? 0 : (uint64_t)i * a->chunks,
             count = i == a->n[0] ? (uint64_t)a->n[0] * a->chunks : a->chunks;
    double sum = 0.0;

    for (uint64_t k = first; k < first + count; k++)
        sum += a->d[0][k];
    a->d[0][(uint64_t)a->n[0] * a->chunks + i] = sum;
}

/* Clip gradients. kind: gp_clip. Thresholds apply to the mean gradient; f[1] contains sums. */
BODY void body_clip(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_tensor *t = tensor_of(a, i);
    double limit = a->kept->rule.threshold * a->d[1][BODY_WEIGHT], norm;
    float g = a->f[1][i], most = (float)limit;

    if (!t->learns || !step_commits(a))
        return;
    if (a->kind == 2) {
        a->f[1][i] = g > most ? most : g < -most ? -most : g;
        return;
    }
    norm =
        sqrt(a->d[0][(uint64_t)a->n[0] * a->chunks + (a->kind == 1 ? a->n[0] : (uint32_t)(t - a->tensors))]);
    if (norm > limit)
        a->f[1][i] = g * (float)(limit / norm);
}

BODY void body_sgdm(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_tensor *t = tensor_of(a, i);
    float rate = a->kept->rule.learn_rate * t->learn_rate_factor, l2 = a->kept->rule.l2 * t->l2_factor,
          w = a->f[0][i], g, v;

    if (!t->learns || !step_commits(a))
        return;
    g = a->f[1][i] * (float)(1.0 / a->d[1][BODY_WEIGHT]) + l2 * w;
    v = (a->kept->rule.momentum == 0.0f ? 0.0f : a->kept->rule.momentum * a->f[2][i]) - rate * g;
    if (a->kept->rule.momentum != 0.0f)
        a->f[2][i] = v;
    a->f[0][i] = w + v;
}

/* Adam; kind 1: AdamW. */
BODY void body_adam(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_tensor *t = tensor_of(a, i);
    const gp_kernel_rule *rule = &a->kept->rule;
    float rate = rule->learn_rate * t->learn_rate_factor, l2 = rule->l2 * t->l2_factor, w = a->f[0][i], g, m,
          v;

    if (!t->learns || !step_commits(a))
        return;
    g = a->f[1][i] * (float)(1.0 / a->d[1][BODY_WEIGHT]) + (a->kind == 1 ? 0.0f : l2 * w);
    m = rule->decay * a->f[2][i] + (1.0f - rule->decay) * g;
    v = rule->squared_decay * a->f[3][i] + (1.0f - rule->squared_decay) * g * g;
    a->f[2][i] = m;
    a->f[3][i] = v;
    w = a->kind == 1 ? (1.0f - rate * l2) * w : w;
    a->f[0][i] = w - rate * rule->correction * m / (sqrtf(v * rule->squared_correction) + rule->epsilon);
}

BODY void body_rmsprop(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_tensor *t = tensor_of(a, i);
    const gp_kernel_rule *rule = &a->kept->rule;
    float rate = rule->learn_rate * t->learn_rate_factor, w = a->f[0][i], g, v;

    if (!t->learns || !step_commits(a))
        return;
    g = a->f[1][i] * (float)(1.0 / a->d[1][BODY_WEIGHT]) + rule->l2 * t->l2_factor * w;
    v = rule->squared_decay * a->f[2][i] + (1.0f - rule->squared_decay) * g * g;
    a->f[2][i] = v;
    a->f[0][i] = w - rate * g / (sqrtf(v) + rule->epsilon);
}

/* Move running means and variances towards the step moments (optim/statistics.c). */
BODY void body_statistics(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_tensor *t = tensor_of(a, i);
    double n = a->d[1][BODY_SUMS] * t->per_sample, shift, variance;
    uint64_t second;

    if (t->statistic != STEP_STATISTIC_MEAN || n <= 0.0 || !step_commits(a))
        return;
    second = t->variance + (i - t->offset);
    shift = (double)a->f[1][i] / n;
    variance = (double)a->f[1][second] / n - shift * shift;
    variance = variance > 0.0 ? variance : 0.0;
    if (n > 1.0)
        variance *= n / (n - 1.0);
    a->f[0][i] = (float)((double)a->f[0][i] + t->statistic_rate * shift);
    a->f[0][second] =
        (float)((double)a->f[0][second] + t->statistic_rate * (variance - (double)a->f[0][second]));
}
