/*
 * A stand-in for libnvidia-ml.so.1, scripted by a text scenario. It answers as the real library was seen
 * to answer, refuses what that refuses, and is stricter in one thing: it records every call that a real
 * driver might forgive today and crash on tomorrow (stale handles, wrong versions, samples freed twice).
 *
 * Environment: FAKENVML_SCENARIO the machine; FAKENVML_CONTROL a file to which statements may be appended
 * while the program runs; FAKENVML_STATS a file of counters (records of 56 bytes name, 8 bytes count) that
 * is right even after SIGKILL; FAKENVML_VIOLATIONS a file for complaints; FAKENVML_ABORT=1 to stop at one.
 * -DBRANCH=N compiles the symbols that driver branch N has. See ../scenarios for the statements.
 */
#define _GNU_SOURCE
#define NVML_NO_UNVERSIONED_FUNC_DEFS

#ifdef NOT_NVML
int not_nvml(void);
int not_nvml(void) { return 0; }
#else

#include <nvml.h>

#include <ctype.h>
#include <fcntl.h>
/* Of <math.h> only what the compiler has built in. */
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define isinf(x) __builtin_isinf(x)
#define fabs(x) __builtin_fabs(x)
static double floor(double x)
{
	double whole = (double)(long long)x;
	return whole > x ? whole - 1 : whole;
}
static double fmin(double a, double b) { return a < b ? a : b; }
static double fmax(double a, double b) { return a > b ? a : b; }

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef BRANCH
#define BRANCH 595
#endif

/* Small, since a test measures the program's memory with this library in it. */
enum { GPUS = 16, SLOTS = 16, KEYS = 44, PROCS = 4096, EVENTS = 512, RULES = 64, METRICS = 256, SAMPLES = 1024, SETS = 8 };
enum { LEN = 512 };
static const unsigned NO_ID = 0xFFFFFFFFu;

/* A GPU (slot -1) or a MIG device, as keys and values of the scenario's text. */
struct ent {
	int exists, gpu, slot, handle, gone, dead; /* dead: destroyed, but still answering (ancient=1) */
	unsigned serial;                           /* of this incarnation */
	int keys;
	char key[KEYS][16], val[KEYS][64];
};

/* What a handle points to. A MIG handle is a number that instances come and go behind. */
struct nvmlDevice_st {
	int gpu, number; /* number -1: the GPU itself */
	unsigned session, serial;
};

struct proc { unsigned pid, gi, ci; char type; unsigned long long mem; };

struct rule { /* fail, lat, hang */
	char kind, func[48];
	int gpu, slot, arg, code, times, every, seen;
	double seconds;
};

struct timed { char line[LEN]; double at; int tick, done; }; /* tick 0: at so many seconds */

struct sample {
	nvmlGpmSample_t token; /* what the caller holds: an address that is never given twice */
	unsigned session, who;
	int gpu, slot, gi;
	double at;
	float value[METRICS];
	int filled;
};

struct event { int gpu; unsigned gi, ci; unsigned long long type, code; };
struct nvmlEventSet_st {
	int alive, queued;
	unsigned session;
	unsigned long long types[GPUS];
	struct event queue[64];
};

static struct ent gpu[GPUS], mig[GPUS][SLOTS];
static struct nvmlDevice_st gpu_handle[GPUS], mig_handle[GPUS][SLOTS];
static struct proc procs[GPUS][PROCS];
static int nprocs[GPUS];
static struct rule rules[RULES];
static int nrules;
static struct timed events[EVENTS];
static int nevents;
#if BRANCH >= 520
static struct sample *samples[SAMPLES];
#endif
static struct nvmlEventSet_st sets[SETS];
static struct event waiting[64]; /* for the first set that registers */
static int nwaiting;
static char driver[80] = "580.95.05", nvmlver[80] = "13.580.95.05";
static int cuda = 13000, init_code, unloaded, stale; /* stale: a process that has had a session is of the old version */
static int active[GPUS], nactive; /* the GPUs of this session: index -> number in the scenario */
static double init_delay, pcie_bytes[GPUS][2], pcie_read[GPUS][2];
static int nsamples, nsets; /* of this process; the counters may be shared by several */
static int sessions, inuse_mode, gpm_used, sessions_ever;
static unsigned session, serials;
static int tick, chaos_rate, chaos_hard;
static uint64_t chaos_state;
static double started, last_count, last_poll;
static off_t control_at;

static double mono(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static unsigned long long epoch_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (unsigned long long)t.tv_sec * 1000000ull + (unsigned long long)t.tv_nsec / 1000ull;
}

static void nap(double seconds)
{
	struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
	while (nanosleep(&t, &t) != 0) {
	}
}

/* ---- counters ---- */

static struct stat_record { char name[56]; uint64_t count; } *stats, local_stats[512];

static void open_stats(void)
{
	const char *path = getenv("FAKENVML_STATS");
	stats = local_stats;
	if (!path)
		return;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof local_stats) != 0)
		return;
	void *p = mmap(NULL, sizeof local_stats, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p != MAP_FAILED)
		stats = p;
}

static uint64_t *counter(const char *name)
{
	if (!stats)
		open_stats();
	for (int i = 0; i < 512; i++) {
		if (stats[i].name[0] == 0)
			snprintf(stats[i].name, sizeof stats[i].name, "%s", name);
		if (strcmp(stats[i].name, name) == 0)
			return &stats[i].count;
	}
	abort();
}

static void violation(const char *func, const char *format, ...)
{
	char text[400];
	int n = snprintf(text, sizeof text, "%s: ", func);
	va_list args;
	va_start(args, format);
	n += vsnprintf(text + n, sizeof text - (size_t)n - 2, format, args);
	va_end(args);
	text[n++] = '\n';
	++*counter("violations");
	const char *path = getenv("FAKENVML_VIOLATIONS");
	if (path) {
		int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (fd >= 0 && write(fd, text, (size_t)n) < 0)
			perror("fakenvml");
		close(fd);
	}
	if (getenv("FAKENVML_ABORT")) {
		fprintf(stderr, "fakenvml: %s", text);
		abort();
	}
}

/* ---- scenario text ---- */

static void broken(const char *line)
{
	fprintf(stderr, "fakenvml: broken scenario line: %s\n", line);
	abort();
}

static const char *get(const struct ent *e, const char *key)
{
	for (int i = 0; i < e->keys; i++)
		if (strcmp(e->key[i], key) == 0)
			return e->val[i];
	return NULL;
}

static void set(struct ent *e, const char *key, const char *val)
{
	int i = 0;
	while (i < e->keys && strcmp(e->key[i], key) != 0)
		i++;
	if (i == KEYS)
		broken(key);
	if (i == e->keys)
		e->keys++;
	if (strlen(key) >= sizeof e->key[i] || strlen(val) >= sizeof e->val[i])
		broken(val);
	strcpy(e->key[i], key);
	strcpy(e->val[i], val);
}

/* The keys of each statement: those whose values are words, and those whose values are numbers. */
static const char *const gpu_keys[] = {
	" name uuid pci arch cc mig pending memory gpm perm grant ecc eccpending parentsamples migutil migproc ",
	" minor migmax mem reserved used util memutil enc dec jpg ofa temp memtemp tslow tshut tmem tgpu tlslow tlshut tlmem tlgpu margin"
	" power powerinst plimit energy gfx sm memclk video pstate throttle gen width genmax widthmax txbps rxbps pciewrap"
	" sbe dbe recovery handle empty ancient lost "};
static const char *const mig_keys[] = {" profile uuid slices ", " gi ci sm ce dec jpg enc ofa mem used sramue handle util memutil "};
static const char *const proc_keys[] = {" type ", " pid mem gi ci "};
static const char *const rule_keys[] = {" mig s ", " code gpu arg times every us "};
static const char *const lib_keys[] = {" driver nvml ", " cuda init initdelay branch stale "};
static const char *const other_keys[] = {" ", " code gi ci seed rate hard pid "};

enum { WINDOW = -12345, METRIC_ERROR = 1000000 };

static int is_number(const char *s)
{
	static const char *const words[] = {"none", "nan", "inf", "window"};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strcmp(s, words[i]) == 0)
			return 1;
	double x;
	if (strncmp(s, "sin:", 4) == 0)
		return sscanf(s, "sin:%lf:%lf:%lf", &x, &x, &x) == 3;
	if (strncmp(s, "ramp:", 5) == 0)
		return sscanf(s, "ramp:%lf:%lf:%lf", &x, &x, &x) == 3;
	if (strncmp(s, "steps:", 6) == 0)
		return s[6] && s[6 + strspn(s + 6, "0123456789.,-")] == 0;
	if (strncmp(s, "err:", 4) == 0)
		s += 4;
	char *end;
	if (s[0] == '0' && s[1] == 'x')
		strtoull(s, &end, 16);
	else
		strtod(s, &end);
	return end != s && (*end == 0 || strcmp(end, "B") == 0);
}

/* A sine of turns, near enough, without the mathematics library. */
static double sine(double turns)
{
	double x = 2 * (turns - floor(turns)) - 1; /* -1..1 for one turn, half a turn ahead */
	double y = 4 * x * (1 - fabs(x));
	return -(0.225 * (y * fabs(y) - y) + y);
}

/* A number of the scenario: plain, or a function of the time or the tick. */
static double number(const char *s)
{
	double a, b, c, d = 0, t = mono() - started;
	if (strcmp(s, "none") == 0)
		return -1;
	if (strcmp(s, "nan") == 0)
		return NAN;
	if (strcmp(s, "inf") == 0)
		return INFINITY;
	if (strcmp(s, "window") == 0)
		return WINDOW;
	if (sscanf(s, "err:%lf", &a) == 1)
		return METRIC_ERROR + a;
	if (sscanf(s, "sin:%lf:%lf:%lf:%lf", &a, &b, &c, &d) >= 3)
		return a + b * sine(t / c + d);
	if (sscanf(s, "ramp:%lf:%lf:%lf", &a, &b, &c) == 3)
		return a + (b - a) * (t / c - floor(t / c));
	if (strncmp(s, "steps:", 6) == 0) {
		s += 6;
		for (int i = 1; i < tick && strchr(s, ','); i++)
			s = strchr(s, ',') + 1;
	}
	char *end;
	double x = (s[0] == '0' && s[1] == 'x') ? (double)strtoull(s, &end, 16) : strtod(s, &end);
	return x;
}

static int has(const struct ent *e, const char *key) { return get(e, key) != NULL; }

static double num(const struct ent *e, const char *key, double otherwise)
{
	const char *v = get(e, key);
	return v ? number(v) : otherwise;
}

/* Memory is MiB, or bytes with suffix B; -1 is the sentinel of all ones. */
static unsigned long long mem(const struct ent *e, const char *key)
{
	const char *v = get(e, key);
	if (!v)
		return 0;
	double x = number(v);
	if (x < 0)
		return ~0ull;
	return v[strlen(v) - 1] == 'B' ? strtoull(v, NULL, 10) : (unsigned long long)(x * 1048576.0);
}

static int is(const struct ent *e, const char *key, const char *word)
{
	const char *v = get(e, key);
	return v && strcmp(v, word) == 0;
}

/* The next blank-separated word; a value may be "quoted". */
static char *word(char **line)
{
	char *p = *line;
	while (*p && isspace((unsigned char)*p))
		p++;
	if (!*p || *p == '#')
		return NULL;
	char *from = p, *to = p;
	int quoted = 0;
	for (; *p && (quoted || !isspace((unsigned char)*p)); p++) {
		if (*p == '"')
			quoted = !quoted;
		else
			*to++ = *p;
	}
	if (*p)
		p++;
	*to = 0;
	*line = p;
	return from;
}

static int in_list(const char *list, const char *key)
{
	char padded[20];
	snprintf(padded, sizeof padded, " %.16s ", key);
	return strstr(list, padded) != NULL;
}

static void keys(struct ent *e, char *rest, const char *const known[2])
{
	for (char *w; (w = word(&rest));) {
		char *eq = strchr(w, '=');
		if (!eq)
			broken(w);
		*eq = 0;
		if (!in_list(known[0], w) && !(in_list(known[1], w) && is_number(eq + 1)))
			broken(w);
		set(e, w, eq + 1);
	}
}

/* N or N.K of things that exist: a GPU, a slot. */
static void pair(const char *w, int *n, int *k)
{
	*k = -1;
	if (!w || sscanf(w, "%d.%d", n, k) < 1 || *n < 0 || *n >= GPUS || *k >= SLOTS || (*k < 0) != !strchr(w, '.'))
		broken(w ? w : "number missing");
	if (!gpu[*n].exists)
		broken(w);
}

static struct ent *instance(const char *w)
{
	int n, k;
	pair(w, &n, &k);
	if (k < 0 || !mig[n][k].exists || mig[n][k].gone)
		broken(w);
	return &mig[n][k];
}

static void default_uuid(struct ent *e)
{
	char text[64];
	unsigned gi = (unsigned)num(e, "gi", 0), ci = (unsigned)num(e, "ci", 0);
	const char *parent = get(&gpu[e->gpu], "uuid"), *profile = get(e, "profile");
	unsigned hash = 2166136261u;
	for (const char *p = profile ? profile : ""; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 16777619u;
	if (BRANCH >= 470)
		snprintf(text, sizeof text, "MIG-%08x-%04x-5%03x-8%03x-%012x", hash, (unsigned)e->gpu, gi, ci, hash ^ (gi << 8) ^ ci);
	else
		snprintf(text, sizeof text, "MIG-%.44s/%u/%u", parent ? parent : "GPU-?", gi, ci);
	set(e, "uuid", text);
}

/* ---- events of the driver ---- */

static int reaches(const struct nvmlEventSet_st *set, const struct event *v)
{
	return set->alive && set->session == session && (set->types[v->gpu] & v->type);
}

/* To every set that is registered; an XID that found none waits for the first. */
static void send_event(struct event v)
{
	int found = 0;
	for (int i = 0; i < SETS; i++) {
		if (!reaches(&sets[i], &v))
			continue;
		found = 1;
		if (sets[i].queued < 64) /* a driver drops what nobody fetches */
			sets[i].queue[sets[i].queued++] = v;
	}
	if (!found && v.type == nvmlEventTypeXidCriticalError && nwaiting < 64)
		waiting[nwaiting++] = v;
}

static void mig_changed(int n)
{
	send_event((struct event){.gpu = n, .gi = NO_ID, .ci = NO_ID, .type = nvmlEventMigConfigChange});
}

/* ---- statements ---- */

static void add_instance(char *rest, char *w)
{
	int n, k;
	pair(w, &n, &k);
	if (k < 0)
		broken(w);
	struct ent *e = &mig[n][k];
	int fresh = !e->exists || e->gone || e->dead;
	if (fresh) {
		memset(e, 0, sizeof *e);
		e->exists = 1;
		e->gpu = n;
		e->slot = e->handle = k;
		e->serial = ++serials;
	}
	keys(e, rest, mig_keys);
	e->handle = (int)num(e, "handle", k);
	for (int i = 0; i < SLOTS; i++)
		if (i != k && mig[n][i].exists && !mig[n][i].gone && mig[n][i].handle == e->handle)
			broken("two instances behind one handle");
	if (e->handle < 0 || e->handle >= SLOTS)
		broken("handle");
	if (fresh && !has(e, "uuid"))
		default_uuid(e);
	mig_changed(n);
}

static void destroy(struct ent *e)
{
	if (is(&gpu[e->gpu], "ancient", "1"))
		e->dead = 1;
	else
		e->gone = 1;
}

/* With MIG off there are no instances, nor do they come back when it is on again. */
static void settle_mig_mode(int n)
{
	for (int k = 0; k < SLOTS; k++)
		if (mig[n][k].exists && !is(&gpu[n], "mig", "on"))
			destroy(&mig[n][k]);
}

static void add_gpu(char *rest, const char *w)
{
	int n = atoi(w);
	if (!isdigit((unsigned char)*w) || n >= GPUS)
		broken(w);
	gpu[n].exists = 1;
	gpu[n].gone = 0;
	gpu[n].gpu = n;
	gpu[n].slot = -1;
	keys(&gpu[n], rest, gpu_keys);
	settle_mig_mode(n);
}

static void set_mig_mode(char *rest, const char *w)
{
	int n, k;
	pair(w, &n, &k);
	const char *mode = word(&rest);
	if (!mode || (strcmp(mode, "on") != 0 && strcmp(mode, "off") != 0))
		broken("migmode");
	set(&gpu[n], "mig", mode);
	set(&gpu[n], "pending", mode);
	keys(&gpu[n], rest, gpu_keys);
	settle_mig_mode(n);
	mig_changed(n);
}

static void add_process(char *rest, char *w)
{
	int n, k;
	pair(w, &n, &k);
	struct ent e = {0};
	keys(&e, rest, proc_keys);
	if (!has(&e, "pid"))
		broken("a process without pid");
	if (nprocs[n] == PROCS)
		broken("too many processes");
	struct proc *p = &procs[n][nprocs[n]++];
	p->pid = (unsigned)num(&e, "pid", 1);
	p->type = has(&e, "type") ? get(&e, "type")[0] : 'C';
	p->mem = has(&e, "mem") ? mem(&e, "mem") : 0;
	p->gi = has(&e, "gi") ? (unsigned)num(&e, "gi", 0) : NO_ID;
	p->ci = has(&e, "ci") ? (unsigned)num(&e, "ci", 0) : NO_ID;
}

static void remove_thing(char *rest)
{
	const char *what = word(&rest), *w = word(&rest);
	int n, k;
	pair(w, &n, &k);
	if (strcmp(what, "mig") == 0) {
		destroy(instance(w));
		mig_changed(n);
	} else if (strcmp(what, "gpu") == 0) {
		gpu[n].gone = 1;
	} else if (strcmp(what, "proc") == 0) {
		struct ent e = {0};
		keys(&e, rest, other_keys);
		for (int i = 0; i < nprocs[n]; i++)
			if (procs[n][i].pid == (unsigned)num(&e, "pid", 0))
				procs[n][i--] = procs[n][--nprocs[n]];
	} else {
		broken(what);
	}
}

static void add_rule(char kind, char *rest)
{
	const char *func = word(&rest);
	if (!func || (*func != '*' && strncmp(func, "nvml", 4) != 0))
		broken("a rule needs a function");
	struct ent e = {0};
	keys(&e, rest, rule_keys);
	struct rule r = {.kind = kind, .gpu = -1, .slot = -1, .arg = -1, .times = -1, .every = 1};
	snprintf(r.func, sizeof r.func, "%s", func);
	r.gpu = (int)num(&e, "gpu", -1);
	if (has(&e, "mig") && sscanf(get(&e, "mig"), "%d.%d", &r.gpu, &r.slot) != 2)
		broken("mig=");
	r.arg = (int)num(&e, "arg", -1);
	r.code = (int)num(&e, "code", 0);
	r.times = (int)num(&e, "times", -1);
	r.every = (int)num(&e, "every", 1);
	r.seconds = kind == 'l' ? num(&e, "us", 0) / 1e6 : is(&e, "s", "forever") ? 1e9 : num(&e, "s", 0);
	int i = 0;
	while (i < nrules && !(rules[i].kind == kind && strcmp(rules[i].func, r.func) == 0 && rules[i].gpu == r.gpu &&
			       rules[i].slot == r.slot && rules[i].arg == r.arg))
		i++;
	if (i == RULES)
		broken("too many rules");
	if (i == nrules)
		nrules++;
	rules[i] = r;
}

static void execute(char *line);

static void add_timed(char *rest)
{
	if (nevents == EVENTS)
		broken("too many events");
	struct timed *t = &events[nevents++];
	memset(t, 0, sizeof *t);
	char *w = word(&rest);
	char *end = "";
	if (w && strcmp(w, "tick") == 0) {
		w = word(&rest);
		t->tick = w ? atoi(w) : 0;
	} else if (w) {
		t->at = strtod(w, &end);
	}
	if (!w || (t->tick <= 0 && strcmp(end, "s") != 0))
		broken("at");
	snprintf(t->line, sizeof t->line, "%s", rest);
}

static void set_library(char *rest)
{
	struct ent e = {0};
	keys(&e, rest, lib_keys);
	cuda = (int)num(&e, "cuda", cuda);
	init_code = (int)num(&e, "init", init_code);
	stale = (int)num(&e, "stale", stale);
	init_delay = num(&e, "initdelay", init_delay * 1000) / 1000;
	if (has(&e, "driver"))
		snprintf(driver, sizeof driver, "%s", get(&e, "driver"));
	if (has(&e, "nvml"))
		snprintf(nvmlver, sizeof nvmlver, "%s", get(&e, "nvml"));
	else
		snprintf(nvmlver, sizeof nvmlver, "%d.%.70s", cuda / 1000, driver);
	if (has(&e, "branch") && (int)num(&e, "branch", 0) != BRANCH) {
		fprintf(stderr, "fakenvml: compiled for branch %d, the scenario wants %s\n", BRANCH, get(&e, "branch"));
		abort();
	}
}

static void gpm_values(char *rest, char *w)
{
	int n, k;
	pair(w, &n, &k);
	struct ent *e = k < 0 ? &gpu[n] : instance(w);
	for (char *v; (v = word(&rest));) {
		char key[20], *eq = strchr(v, '=');
		if (!eq)
			broken(v);
		*eq = 0;
		if (atoi(v) <= 0 || atoi(v) >= METRICS || !is_number(eq + 1))
			broken(v);
		snprintf(key, sizeof key, "gpm.%d", atoi(v));
		set(e, key, eq + 1);
	}
}

static void queue_xid(char *rest, int n)
{
	struct ent e = {0};
	keys(&e, rest, other_keys);
	send_event((struct event){
		.gpu = n,
		.gi = has(&e, "gi") ? (unsigned)num(&e, "gi", 0) : NO_ID,
		.ci = has(&e, "ci") ? (unsigned)num(&e, "ci", 0) : NO_ID,
		.type = nvmlEventTypeXidCriticalError,
		.code = (unsigned long long)num(&e, "code", 79),
	});
}

static void set_chaos(char *rest)
{
	struct ent e = {0};
	keys(&e, rest, other_keys);
	chaos_state = (uint64_t)num(&e, "seed", 1) * 0x9E3779B97F4A7C15ull + 1;
	chaos_rate = (int)num(&e, "rate", 0);
	chaos_hard = (int)num(&e, "hard", 0);
}

static void set_unloaded(char *rest)
{
	struct ent e = {0};
	keys(&e, rest, other_keys);
	unloaded = (int)num(&e, "code", NVML_ERROR_DRIVER_NOT_LOADED);
}

static void set_inuse(const char *mode)
{
	static const char *const modes[] = {"off", "on", "once"};
	for (inuse_mode = 0; inuse_mode < 3; inuse_mode++)
		if (strcmp(mode, modes[inuse_mode]) == 0)
			return;
	broken(mode);
}

static void execute(char *line)
{
	char copy[LEN], *rest = line;
	snprintf(copy, sizeof copy, "%s", line);
	const char *verb = word(&rest);
	if (!verb)
		return;
	if (strcmp(verb, "at") == 0)
		return add_timed(rest);
	if (strcmp(verb, "fail") == 0 || strcmp(verb, "lat") == 0 || strcmp(verb, "hang") == 0)
		return add_rule(verb[0], rest);
	if (strcmp(verb, "lib") == 0)
		return set_library(rest);
	if (strcmp(verb, "gone") == 0)
		return remove_thing(rest);
	if (strcmp(verb, "unload") == 0)
		return set_unloaded(rest);
	if (strcmp(verb, "chaos") == 0)
		return set_chaos(rest);
	if (strcmp(verb, "reload") == 0) {
		unloaded = 0;
		return;
	}
	char *w = word(&rest);
	if (!w)
		broken(copy);
	if (strcmp(verb, "inuse") == 0)
		return set_inuse(w);
	if (strcmp(verb, "gpu") == 0)
		return add_gpu(rest, w);
	if (strcmp(verb, "mig") == 0)
		return add_instance(rest, w);
	if (strcmp(verb, "proc") == 0)
		return add_process(rest, w);
	if (strcmp(verb, "gpm") == 0)
		return gpm_values(rest, w);
	if (strcmp(verb, "migmode") == 0)
		return set_mig_mode(rest, w);
	int n, k;
	pair(w, &n, &k);
	if (strcmp(verb, "lost") == 0)
		set(&gpu[n], "lost", "15");
	else if (strcmp(verb, "unlost") == 0)
		set(&gpu[n], "lost", "0");
	else if (strcmp(verb, "resetreq") == 0)
		set(&gpu[n], "lost", "16");
	else if (strcmp(verb, "xid") == 0)
		queue_xid(rest, n);
	else
		broken(copy);
}

static void execute_text(char *text)
{
	for (char *line = text; line && *line;) {
		char *end = strchr(line, '\n');
		if (end)
			*end = 0;
		if (strlen(line) >= LEN)
			broken(line);
		execute(line);
		line = end ? end + 1 : NULL;
	}
}

/* What path holds from there on; whole lines only, as the rest may be half written. */
static char *slurp(const char *path, off_t from, off_t *to)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) != 0 || st.st_size <= from) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	char *text = calloc(1, (size_t)(st.st_size - from) + 1);
	ssize_t n = pread(fd, text, (size_t)(st.st_size - from), from);
	close(fd);
	char *end = n > 0 ? memrchr(text, '\n', (size_t)n) : NULL;
	if (!end) {
		free(text);
		return NULL;
	}
	end[1] = 0;
	*to = from + (end + 1 - text);
	return text;
}

static void read_scenario(void)
{
	off_t to;
	const char *path = getenv("FAKENVML_SCENARIO");
	char *text = path ? slurp(path, 0, &to) : NULL;
	struct stat st;
	if (path && (!text || stat(path, &st) != 0 || st.st_size != to))
		broken(path); /* unreadable, or its last line has no end */
	started = mono();
	if (text)
		execute_text(text);
	free(text);
	*counter("sessions") = *counter("samples") = *counter("eventsets") = 0;
	*counter("pid") = (uint64_t)getpid();
	tick = (int)*counter("tick");
}

static void poll_control(void)
{
	const char *path = getenv("FAKENVML_CONTROL");
	double now = mono();
	if (!path || now - last_poll < 0.001)
		return;
	last_poll = now;
	struct stat st;
	if (stat(path, &st) != 0 || st.st_size == control_at)
		return;
	char *text = slurp(path, control_at, &control_at);
	if (text)
		execute_text(text);
	free(text);
}

/* What is due: at a tick only when a tick begins, at a time before any call. */
static void run_timed(int ticked)
{
	double t = mono() - started;
	for (int i = 0; i < nevents; i++) {
		struct timed *e = &events[i];
		if (e->done || (e->tick ? !ticked || tick < e->tick : t < e->at))
			continue;
		e->done = 1;
		char line[LEN];
		memcpy(line, e->line, LEN);
		execute(line);
	}
}

/* ---- entering a call ---- */

static atomic_int inside;

static void leave(int *guard)
{
	if (*guard)
		atomic_store(&inside, 0);
}

static struct ent *behind(nvmlDevice_t d) /* NULL if nobody is */
{
	if (d.handle->number < 0)
		return &gpu[d.handle->gpu];
	for (int k = 0; k < SLOTS; k++) {
		struct ent *e = &mig[d.handle->gpu][k];
		if (e->exists && !e->gone && e->handle == d.handle->number)
			return e;
	}
	return NULL;
}

static int ours(const struct nvmlDevice_st *h)
{
	return (h >= gpu_handle && h < gpu_handle + GPUS) || (h >= mig_handle[0] && h < mig_handle[0] + GPUS * SLOTS);
}

/* Whom d is, with complaints about handles that should not be used any more. */
static nvmlReturn_t resolve(const char *func, nvmlDevice_t d, struct ent **e)
{
	if (!d.handle || !ours(d.handle)) {
		violation(func, "a handle that was never handed out");
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	*e = behind(d);
	if (d.handle->session != session)
		violation(func, "a handle of an earlier session (gpu %d, %d)", d.handle->gpu, d.handle->number);
	if (!*e) {
		violation(func, "the handle of a destroyed instance (gpu %d)", d.handle->gpu);
		return is(&gpu[d.handle->gpu], "mig", "on") ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
	}
	if ((*e)->slot >= 0 && d.handle->serial != (*e)->serial)
		violation(func, "a stale handle that now names another instance (%d.%d)", (*e)->gpu, (*e)->slot);
	return NVML_SUCCESS;
}

static int rule_fits(struct rule *r, char kind, const char *func, const struct ent *e, int arg)
{
	if (r->kind != kind || r->times == 0 || (strcmp(r->func, func) != 0 && strcmp(r->func, "*") != 0))
		return 0;
	if ((r->gpu >= 0 && (!e || e->gpu != r->gpu)) || (r->slot >= 0 && (!e || e->slot != r->slot)))
		return 0;
	return r->arg < 0 || r->arg == arg;
}

static int rule_fires(struct rule *r)
{
	if (++r->seen % (r->every > 0 ? r->every : 1) != 0)
		return 0;
	if (r->times > 0)
		r->times--;
	return 1;
}

static unsigned chance(unsigned below)
{
	chaos_state ^= chaos_state << 13;
	chaos_state ^= chaos_state >> 7;
	chaos_state ^= chaos_state << 17;
	return (unsigned)((chaos_state >> 11) % below);
}

/* Calls that free memory and ask no driver; Shutdown too goes well after the driver is gone. */
static int only_memory(const char *func)
{
	return strcmp(func, "nvmlGpmSampleFree") == 0 || strcmp(func, "nvmlEventSetFree") == 0 || strcmp(func, "nvmlShutdown") == 0;
}

static nvmlReturn_t chaos(const char *func)
{
	static const int soft[] = {3, 4, 10, 17, 19, 20, 21, 23, 27, 29, 999}, hard[] = {1, 9, 15, 16, 6, 2};
	if (chaos_rate == 0 || only_memory(func) || chance(1000) >= (unsigned)chaos_rate)
		return NVML_SUCCESS;
	if (chaos_hard && chance(50) == 0)
		nap(0.001 * chance(300));
	if (chaos_hard && chance(8) == 0)
		return (nvmlReturn_t)hard[chance(sizeof hard / sizeof *hard)];
	return (nvmlReturn_t)soft[chance(sizeof soft / sizeof *soft)];
}

static int cached_identity(const char *func)
{
	static const char *const names[] = {"nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetIndex",
					    "nvmlDeviceGetMinorNumber", "nvmlDeviceGetPciInfo_v3"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(func, names[i]) == 0)
			return 1;
	return 0;
}

/* What every call does first. e is set for calls on a device. */
static nvmlReturn_t enter(int *guard, const char *func, const nvmlDevice_t *d, struct ent **e, int arg)
{
	int expected = 0;
	*guard = atomic_compare_exchange_strong(&inside, &expected, 1);
	if (!*guard)
		violation(func, "called while another call is running");
	if (started == 0)
		read_scenario();
	poll_control();
	run_timed(0);
	++*counter(func);
	++*counter("calls");
	int starting = strncmp(func, "nvmlInit", 8) == 0;
	if (sessions == 0 && !starting) {
		violation(func, "called without a session");
		return NVML_ERROR_UNINITIALIZED;
	}
	nvmlReturn_t rc = d ? resolve(func, *d, e) : NVML_SUCCESS;
	const struct ent *at = d ? *e : NULL;
	for (int i = 0; i < nrules; i++) {
		if (rule_fits(&rules[i], 'l', func, at, arg))
			nap(rules[i].seconds);
		if (rule_fits(&rules[i], 'h', func, at, arg) && rule_fires(&rules[i]))
			nap(rules[i].seconds);
	}
	if (rc != NVML_SUCCESS)
		return rc;
	if (unloaded && !only_memory(func))
		return (nvmlReturn_t)unloaded;
	if (at && (gpu[at->gpu].gone || num(&gpu[at->gpu], "lost", 0) > 0) && !cached_identity(func))
		return gpu[at->gpu].gone ? NVML_ERROR_GPU_IS_LOST : (nvmlReturn_t)num(&gpu[at->gpu], "lost", 0);
	for (int i = 0; i < nrules; i++)
		if (rule_fits(&rules[i], 'f', func, at, arg) && rules[i].code != 0 && rule_fires(&rules[i]))
			return (nvmlReturn_t)rules[i].code;
	return chaos(func);
}

#define ENTER_ARG(d, arg)                                                                                              \
	struct ent *e = NULL;                                                                                          \
	int guard __attribute__((cleanup(leave))) = 0;                                                                 \
	nvmlReturn_t rc = enter(&guard, __func__, &(d), &e, (int)(arg));                                               \
	if (rc != NVML_SUCCESS)                                                                                        \
	return rc
#define ENTER(d) ENTER_ARG(d, -1)
#define ENTER_SYSTEM()                                                                                                 \
	int guard __attribute__((cleanup(leave))) = 0;                                                                 \
	nvmlReturn_t rc = enter(&guard, __func__, NULL, NULL, -1);                                                     \
	if (rc != NVML_SUCCESS)                                                                                        \
	return rc

static int is_mig(const struct ent *e) { return e->slot >= 0; }
static struct ent *root(const struct ent *e) { return &gpu[e->gpu]; }
static int mig_on(const struct ent *e) { return is(root(e), "mig", "on"); }
static int restricted(const struct ent *e) { return !is_mig(e) && mig_on(e) && is(e, "perm", "instance"); }
static int arch(const struct ent *e)
{
	return is(root(e), "arch", "unknown") ? -1 : (int)num(root(e), "arch", 9);
}

static nvmlReturn_t text(char *out, unsigned len, const char *s)
{
	if (!s)
		return NVML_ERROR_NOT_SUPPORTED;
	if (strlen(s) >= len)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	snprintf(out, len, "%s", s);
	return NVML_SUCCESS;
}

/* ---- life cycle ---- */

/* What the library learns of the machine and then keeps until the last Shutdown. */
static void begin_session(void)
{
	session++;
	sessions_ever++;
	gpm_used = 0;
	nactive = 0;
	for (int n = 0; n < GPUS; n++) {
		if (gpu[n].exists && !gpu[n].gone)
			active[nactive++] = n;
		for (int k = 0; k < SLOTS; k++)
			if (mig[n][k].dead)
				mig[n][k].gone = 1;
	}
}

static nvmlReturn_t init(void)
{
	if (stale && sessions_ever > 0)
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	nap(init_delay);
	if (init_code)
		return (nvmlReturn_t)init_code;
	if (sessions++ == 0)
		begin_session();
	*counter("sessions") = (uint64_t)sessions;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void)
{
#ifdef ALWAYS_INIT
	return (nvmlReturn_t)ALWAYS_INIT;
#else
	ENTER_SYSTEM();
	return init();
#endif
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	ENTER_SYSTEM();
	(void)flags;
	return init();
}

nvmlReturn_t nvmlShutdown(void)
{
	int guard __attribute__((cleanup(leave))) = 0;
	nvmlReturn_t rc = enter(&guard, __func__, NULL, NULL, -1);
	if (sessions == 0)
		return rc != NVML_SUCCESS ? rc : NVML_ERROR_UNINITIALIZED;
	if (sessions == 1 && nsamples > 0)
		violation(__func__, "%d GPM samples are still alive", nsamples);
	if (sessions == 1 && nsets > 0)
		violation(__func__, "%d event sets are still alive", nsets);
	*counter("sessions") = (uint64_t)--sessions;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	return result == NVML_SUCCESS ? "Success" : "An error of the test double";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	ENTER_SYSTEM();
	return text(version, length, driver);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	ENTER_SYSTEM();
	return text(version, length, nvmlver);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	ENTER_SYSTEM();
	*version = cuda;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	double now = mono();
	if (now - last_count >= 0.06) {
		*counter("tick") = (uint64_t)++tick;
		run_timed(1);
	}
	last_count = now;
	ENTER_SYSTEM();
	*count = (unsigned)nactive;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	struct ent *e = index < (unsigned)nactive ? &gpu[active[index]] : NULL;
	int guard __attribute__((cleanup(leave))) = 0;
	nvmlReturn_t rc = enter(&guard, __func__, NULL, NULL, (int)index);
	if (rc != NVML_SUCCESS)
		return rc;
	if (!e)
		return NVML_ERROR_INVALID_ARGUMENT;
	int n = e->gpu, lost = (int)num(e, "lost", 0);
	if (e->gone)
		return NVML_ERROR_GPU_IS_LOST;
	if (num(e, "handle", 0) > 0)
		return (nvmlReturn_t)num(e, "handle", 0);
	if (lost > 0) /* 999 is what a fresh look at a GPU off the bus gives */
		return lost == NVML_ERROR_RESET_REQUIRED ? NVML_ERROR_RESET_REQUIRED : NVML_ERROR_UNKNOWN;
	gpu_handle[n] = (struct nvmlDevice_st){.gpu = n, .number = -1, .session = session};
	device->handle = &gpu_handle[n];
	return NVML_SUCCESS;
}

/* ---- topology ---- */

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t d, unsigned int *index)
{
	ENTER(d);
	*index = (unsigned)e->slot;
	for (int i = 0; !is_mig(e) && i < nactive; i++)
		if (active[i] == e->gpu)
			*index = (unsigned)i;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned int length)
{
	ENTER(d);
	char full[240];
	const char *base = get(root(e), "name"), *profile = get(e, "profile");
	snprintf(full, sizeof full, is_mig(e) ? "%s MIG %s" : "%s", base ? base : "NVIDIA Test", profile ? profile : "?");
	return text(name, length, full);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned int length)
{
	ENTER(d);
	return text(uuid, length, get(e, "uuid"));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci)
{
	ENTER(d);
	memset(pci, 0, sizeof *pci);
	const char *id = get(root(e), "pci");
	if (!id)
		return NVML_ERROR_NOT_SUPPORTED;
	snprintf(pci->busId, sizeof pci->busId, "%s", id);
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%s", strlen(id) > 12 ? id + 4 : id);
	sscanf(id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned int *minor)
{
	ENTER(d);
	*minor = (unsigned)num(root(e), "minor", e->gpu);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t d, nvmlDeviceArchitecture_t *a)
{
	ENTER(d);
	*a = (nvmlDeviceArchitecture_t)arch(e);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor)
{
	ENTER(d);
	const char *cc = get(root(e), "cc");
	return cc && sscanf(cc, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned int *current, unsigned int *pending)
{
	ENTER(d);
	if (is_mig(e))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!has(e, "mig") || is(e, "mig", "none"))
		return NVML_ERROR_NOT_SUPPORTED;
	*current = *pending = (unsigned)mig_on(e);
	if (has(e, "pending"))
		*pending = (unsigned)is(e, "pending", "on");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned int *count)
{
	ENTER(d);
	if (is_mig(e))
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = mig_on(e) ? (unsigned)num(e, "migmax", 7) : 0;
	return NVML_SUCCESS;
}

static int granted(const struct ent *e, int slot)
{
	if (!is(e, "perm", "instance"))
		return 1;
	const char *list = get(e, "grant");
	for (const char *p = list; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (atoi(p) == slot)
			return 1;
	return 0;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned int index, nvmlDevice_t *out)
{
	ENTER_ARG(d, index);
	if (is_mig(e) || index >= (unsigned)num(e, "migmax", 7))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!mig_on(e))
		return NVML_ERROR_NOT_SUPPORTED;
	struct ent *m = &mig[e->gpu][index];
	if (!m->exists || m->gone || !granted(e, (int)index))
		return (nvmlReturn_t)num(e, "empty", NVML_ERROR_NOT_FOUND);
	struct nvmlDevice_st *h = &mig_handle[e->gpu][m->handle];
	*h = (struct nvmlDevice_st){.gpu = e->gpu, .number = m->handle, .session = session, .serial = m->serial};
	out->handle = h;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t d, nvmlDevice_t *out)
{
	ENTER(d);
	if (!is_mig(e))
		return NVML_ERROR_INVALID_ARGUMENT;
	out->handle = &gpu_handle[e->gpu];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t d, unsigned int *yes)
{
	ENTER(d);
	*yes = (unsigned)is_mig(e);
	return NVML_SUCCESS;
}

static nvmlReturn_t instance_id(const struct ent *e, const char *key, unsigned *id)
{
	if (!is_mig(e))
		return NVML_ERROR_NOT_SUPPORTED;
	*id = (unsigned)num(e, key, 0);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned int *id)
{
	ENTER(d);
	return instance_id(e, "gi", id);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned int *id)
{
	ENTER(d);
	return instance_id(e, "ci", id);
}

/* Memory belongs to the GPU instance: its first compute instance has the numbers. */
static const struct ent *memory_of(const struct ent *e)
{
	for (int k = 0; is_mig(e) && k < SLOTS; k++) {
		const struct ent *m = &mig[e->gpu][k];
		if (m->exists && !m->gone && num(m, "gi", -1) == num(e, "gi", -2))
			return m;
	}
	return e;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a)
{
	ENTER(d);
	if (!is_mig(e))
		return NVML_ERROR_NOT_SUPPORTED;
	memset(a, 0, sizeof *a);
	a->multiprocessorCount = (unsigned)num(e, "sm", 16);
	a->sharedCopyEngineCount = (unsigned)num(e, "ce", 1);
	a->sharedDecoderCount = (unsigned)num(e, "dec", 0);
	a->sharedEncoderCount = (unsigned)num(e, "enc", 0);
	a->sharedJpegCount = (unsigned)num(e, "jpg", 0);
	a->sharedOfaCount = (unsigned)num(e, "ofa", 0);
	a->gpuInstanceSliceCount = a->computeInstanceSliceCount = 1;
	if (has(e, "slices"))
		sscanf(get(e, "slices"), "%u/%u", &a->gpuInstanceSliceCount, &a->computeInstanceSliceCount);
	a->memorySizeMB = mem(memory_of(e), "mem") >> 20;
	return NVML_SUCCESS;
}

/* ---- memory ---- */

static nvmlReturn_t memory_refused(const struct ent *e)
{
	if (is(root(e), "memory", "none"))
		return NVML_ERROR_NOT_SUPPORTED;
	if (restricted(e))
		return NVML_ERROR_NO_PERMISSION;
	if (is_mig(e) && gpm_used && (inuse_mode == 1 || (inuse_mode == 2 && sessions_ever == 1)))
		return NVML_ERROR_IN_USE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m)
{
	ENTER(d);
	if ((rc = memory_refused(e)) != NVML_SUCCESS)
		return rc;
	const struct ent *at = memory_of(e);
	m->total = mem(at, "mem");
	m->used = mem(at, "used") + (is_mig(e) ? 0 : mem(at, "reserved"));
	m->free = m->total - m->used;
	return NVML_SUCCESS;
}

#if BRANCH >= 510
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m)
{
	ENTER(d);
	if (m->version != nvmlMemory_v2 && m->version != 2) {
		violation(__func__, "version %x", m->version);
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	}
	if ((rc = memory_refused(e)) != NVML_SUCCESS)
		return rc;
	const struct ent *at = memory_of(e);
	m->total = mem(at, "mem");
	m->reserved = is_mig(e) ? 0 : mem(at, "reserved");
	m->used = mem(at, "used");
	m->free = m->total - m->used - m->reserved;
	return NVML_SUCCESS;
}
#endif

/* ---- activity ---- */

static unsigned busy(const struct ent *e, const char *key) { return (unsigned)fmin(fmax(num(e, key, 0), 0), 100); }

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u)
{
	ENTER(d);
	if (mig_on(e) && !(is_mig(e) && is(root(e), "migutil", "yes")))
		return NVML_ERROR_NOT_SUPPORTED;
	if (!has(e, "util"))
		return NVML_ERROR_NOT_SUPPORTED;
	u->gpu = busy(e, "util");
	u->memory = busy(e, "memutil");
	return NVML_SUCCESS;
}

static nvmlReturn_t engine(const struct ent *e, const char *key, unsigned *pct, unsigned *period)
{
	if (mig_on(e) || !has(e, key))
		return NVML_ERROR_NOT_SUPPORTED;
	*pct = busy(e, key);
	*period = 167000;
	return NVML_SUCCESS;
}

#define ENGINE(function, key)                                                                                          \
	nvmlReturn_t function(nvmlDevice_t d, unsigned int *pct, unsigned int *period)                                 \
	{                                                                                                              \
		ENTER(d);                                                                                              \
		return engine(e, key, pct, period);                                                                    \
	}
ENGINE(nvmlDeviceGetEncoderUtilization, "enc")
ENGINE(nvmlDeviceGetDecoderUtilization, "dec")
#if BRANCH >= 535
ENGINE(nvmlDeviceGetJpgUtilization, "jpg")
ENGINE(nvmlDeviceGetOfaUtilization, "ofa")
#endif

static int on_device(const struct ent *e, const struct proc *p)
{
	return !is_mig(e) || (p->gi == (unsigned)num(e, "gi", 0) && p->ci == (unsigned)num(e, "ci", 0));
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t d, nvmlProcessUtilizationSample_t *out, unsigned int *count,
					     unsigned long long seen)
{
	ENTER(d);
	int answers = !mig_on(e) || (is_mig(e) && is(root(e), "migproc", "yes"));
	if (!answers) { /* the size query goes well, the data are refused (535) */
		if (!out) {
			*count = 0;
			return NVML_SUCCESS;
		}
		return is_mig(e) ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
	}
	unsigned n = 0, room = out ? *count : 0;
	unsigned long long now = epoch_us();
	now -= now % 166667; /* of the last sample */
	for (int i = 0; i < nprocs[e->gpu]; i++) {
		struct proc *p = &procs[e->gpu][i];
		if (!on_device(e, p) || now <= seen)
			continue;
		if (n < room)
			out[n] = (nvmlProcessUtilizationSample_t){.pid = p->pid, .timeStamp = now, .smUtil = busy(e, "util")};
		n++;
	}
	*count = n;
	if (n == 0)
		return NVML_ERROR_NOT_FOUND;
	return n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static const char *const ring_key[] = {"power", "util", "memutil", "enc", "dec", "gfx", "memclk"};

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t d, nvmlSamplingType_t type, unsigned long long seen, nvmlValueType_t *kind,
				  unsigned int *count, nvmlSample_t *out)
{
	ENTER_ARG(d, type);
	if (is_mig(e))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (type >= sizeof ring_key / sizeof *ring_key)
		return NVML_ERROR_NOT_SUPPORTED;
	int power = type == NVML_TOTAL_POWER_SAMPLES;
	unsigned ring = power ? 119 : 72;
	unsigned long long step = power ? 20000 : 166667, now = epoch_us();
	*kind = NVML_VALUE_TYPE_UNSIGNED_INT;
	if (!out) {
		*count = ring;
		return NVML_SUCCESS;
	}
	int activity = type >= NVML_GPU_UTILIZATION_SAMPLES && type <= NVML_DEC_UTILIZATION_SAMPLES;
	int refused = activity && mig_on(e) && !is(e, "parentsamples", "yes"); /* the data only, not the size */
	if (refused || !has(e, ring_key[type]))
		return NVML_ERROR_NOT_SUPPORTED;
	unsigned n = 0;
	now -= now % step;
	for (unsigned i = 0; i < ring && n < *count; i++) {
		unsigned long long at = now - (ring - 1 - i) * step;
		if (at <= seen)
			continue;
		out[n].timeStamp = at;
		out[n].sampleValue.ullVal = 0;
		out[n++].sampleValue.uiVal = activity ? busy(e, ring_key[type]) : (unsigned)num(e, ring_key[type], 0);
	}
	*count = n;
	return n ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* ---- processes ---- */

static nvmlReturn_t list(const struct ent *e, char type, unsigned *count, char *out, size_t stride, int ids)
{
	if (restricted(e))
		return NVML_ERROR_NO_PERMISSION;
	unsigned n = 0, room = out ? *count : 0;
	for (int i = 0; i < nprocs[e->gpu]; i++) {
		const struct proc *p = &procs[e->gpu][i];
		if (p->type != type || !on_device(e, p))
			continue;
		if (n < room) {
			nvmlProcessInfo_v2_t info = {p->pid, p->mem, p->gi, p->ci};
			memset(out + n * stride, 0xA5, stride);
			memcpy(out + n * stride, &info, ids ? sizeof info : 16);
		}
		n++;
	}
	*count = n;
	return n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#ifdef EARLY535
enum { V3_STRIDE = 32 };
#else
enum { V3_STRIDE = 24 };
#endif

#define LISTS(kind, letter)                                                                                            \
	nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v1_t *out) \
	{                                                                                                              \
		ENTER(d);                                                                                              \
		return list(e, letter, n, (char *)out, 16, 0);                                                         \
	}
#define LISTS_2(kind, letter)                                                                                          \
	nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v2(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v2_t *out) \
	{                                                                                                              \
		ENTER(d);                                                                                              \
		return list(e, letter, n, (char *)out, 24, 1);                                                         \
	}
#define LISTS_3(kind, letter)                                                                                          \
	nvmlReturn_t nvmlDeviceGet##kind##RunningProcesses_v3(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_t *out) \
	{                                                                                                              \
		ENTER(d);                                                                                              \
		return list(e, letter, n, (char *)out, V3_STRIDE, 1);                                                  \
	}
LISTS(Compute, 'C')
LISTS_2(Compute, 'C')
LISTS(Graphics, 'G')
LISTS_2(Graphics, 'G')
LISTS(MPSCompute, 'M')
#if BRANCH >= 510
LISTS_3(Compute, 'C')
LISTS_3(Graphics, 'G')
LISTS_2(MPSCompute, 'M')
LISTS_3(MPSCompute, 'M')
#endif

#if BRANCH >= 535
nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t d, nvmlConfComputeMemSizeInfo_t *m)
{
	ENTER(d);
	(void)m;
	return NVML_ERROR_NOT_SUPPORTED;
}
#ifndef EARLY535
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t d, nvmlProcessDetailList_t *l)
{
	ENTER(d);
	(void)l;
	return NVML_ERROR_NOT_SUPPORTED;
}
#endif
#endif

/* ---- sensors of a whole GPU ---- */

/* A MIG handle answers these with refused; a GPU whose scenario has no such key does not support it. */
static nvmlReturn_t sensor(const struct ent *e, const char *key, nvmlReturn_t refused, unsigned *out)
{
	if (is_mig(e))
		return refused;
	if (!has(e, key))
		return NVML_ERROR_NOT_SUPPORTED;
	*out = (unsigned)(long long)num(e, key, 0);
	return NVML_SUCCESS;
}

#define SENSOR(function, key, refused)                                                                                 \
	nvmlReturn_t function(nvmlDevice_t d, unsigned int *out)                                                       \
	{                                                                                                              \
		ENTER(d);                                                                                              \
		return sensor(e, key, refused, out);                                                                   \
	}
SENSOR(nvmlDeviceGetPowerUsage, "power", NVML_ERROR_NOT_SUPPORTED)
SENSOR(nvmlDeviceGetEnforcedPowerLimit, "plimit", NVML_ERROR_NOT_SUPPORTED)
SENSOR(nvmlDeviceGetPowerManagementLimit, "plimit", NVML_ERROR_NOT_SUPPORTED)
SENSOR(nvmlDeviceGetCurrPcieLinkGeneration, "gen", NVML_ERROR_INVALID_ARGUMENT)
SENSOR(nvmlDeviceGetCurrPcieLinkWidth, "width", NVML_ERROR_INVALID_ARGUMENT)
SENSOR(nvmlDeviceGetMaxPcieLinkGeneration, "genmax", NVML_ERROR_INVALID_ARGUMENT)
SENSOR(nvmlDeviceGetMaxPcieLinkWidth, "widthmax", NVML_ERROR_INVALID_ARGUMENT)

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t s, unsigned int *out)
{
	ENTER_ARG(d, s);
	if (s != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	return sensor(e, "temp", NVML_ERROR_INVALID_ARGUMENT, out);
}

#if BRANCH >= 570
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t d, nvmlTemperature_t *t)
{
	ENTER(d);
	if (t->version != nvmlTemperature_v1) {
		violation(__func__, "version %x", t->version);
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	}
	if (t->sensorType != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	unsigned x;
	if ((rc = sensor(e, "temp", NVML_ERROR_INVALID_ARGUMENT, &x)) == NVML_SUCCESS)
		t->temperature = (int)x;
	return rc;
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t d, nvmlMarginTemperature_t *t)
{
	ENTER(d);
	if (t->version != nvmlMarginTemperature_v1) {
		violation(__func__, "version %x", t->version);
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	}
	unsigned x;
	if ((rc = sensor(e, "margin", NVML_ERROR_INVALID_ARGUMENT, &x)) == NVML_SUCCESS)
		t->marginTemperature = (int)x;
	return rc;
}
#endif

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t d, nvmlTemperatureThresholds_t t, unsigned int *out)
{
	ENTER_ARG(d, t);
	static const char *const key[] = {"tshut", "tslow", "tmem", "tgpu"};
	if (arch(e) >= 9 || t > NVML_TEMPERATURE_THRESHOLD_GPU_MAX)
		return NVML_ERROR_NOT_SUPPORTED;
	return sensor(e, key[t], NVML_ERROR_NOT_SUPPORTED, out);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *mj)
{
	ENTER(d);
	if (is_mig(e) || !has(e, "energy"))
		return NVML_ERROR_NOT_SUPPORTED;
	*mj = (unsigned long long)num(e, "energy", 0);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t t, unsigned int *mhz)
{
	ENTER_ARG(d, t);
	static const char *const key[] = {"gfx", "sm", "memclk", "video"};
	return t > NVML_CLOCK_VIDEO ? NVML_ERROR_INVALID_ARGUMENT : sensor(e, key[t], NVML_ERROR_NOT_SUPPORTED, mhz);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t d, nvmlPstates_t *p)
{
	ENTER(d);
	unsigned x;
	if ((rc = sensor(e, "pstate", NVML_ERROR_NOT_SUPPORTED, &x)) == NVML_SUCCESS)
		*p = (nvmlPstates_t)x;
	return rc;
}

static nvmlReturn_t throttle(const struct ent *e, unsigned long long *bits)
{
	if (is_mig(e) || !has(e, "throttle"))
		return NVML_ERROR_NOT_SUPPORTED;
	*bits = (unsigned long long)num(e, "throttle", 0);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *bits)
{
	ENTER(d);
	return throttle(e, bits);
}

#if BRANCH >= 535
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *bits)
{
	ENTER(d);
	return throttle(e, bits);
}
#endif

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, nvmlPcieUtilCounter_t c, unsigned int *kb)
{
	ENTER_ARG(d, c);
	if (is_mig(e))
		return NVML_ERROR_INVALID_ARGUMENT;
	const char *key = c == NVML_PCIE_UTIL_TX_BYTES ? "txbps" : "rxbps";
	if (!has(e, key))
		return NVML_ERROR_NOT_SUPPORTED;
	int timed = 0;
	for (int i = 0; i < nrules; i++)
		timed |= rule_fits(&rules[i], 'l', __func__, e, (int)c);
	if (!timed)
		nap(0.02); /* it counts over a window of 20 ms */
	*kb = (unsigned)(num(e, key, 0) / 1024);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t d, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
	ENTER(d);
	if (is_mig(e) || !has(e, "ecc") || is(e, "ecc", "none"))
		return NVML_ERROR_NOT_SUPPORTED;
	*current = *pending = is(e, "ecc", "on") ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	if (has(e, "eccpending"))
		*pending = is(e, "eccpending", "on") ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

/* Branch 510 was seen to refuse the volatile counts while MIG is on. */
static int no_volatile_ecc(const struct ent *e) { return BRANCH <= 510 && mig_on(e); }

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t type, nvmlEccCounterType_t kind, unsigned long long *n)
{
	ENTER_ARG(d, type);
	const char *key = type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? "sbe" : "dbe";
	if (is_mig(e) || !is(e, "ecc", "on") || !has(e, key) || (kind == NVML_VOLATILE_ECC && no_volatile_ecc(e)))
		return NVML_ERROR_NOT_SUPPORTED;
	*n = (unsigned long long)num(e, key, 0);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t d, nvmlMemoryErrorType_t type, nvmlEccCounterType_t volatility,
					     nvmlMemoryLocation_t where, unsigned long long *n)
{
	ENTER(d);
	if (!is_mig(e) || type != NVML_MEMORY_ERROR_TYPE_UNCORRECTED || volatility != NVML_VOLATILE_ECC || where != NVML_MEMORY_LOCATION_SRAM)
		return NVML_ERROR_NOT_SUPPORTED;
	if (!is(root(e), "ecc", "on"))
		return NVML_ERROR_NOT_SUPPORTED;
	*n = (unsigned long long)num(e, "sramue", 0);
	return NVML_SUCCESS;
}

/* ---- fields ---- */

static void put(nvmlFieldValue_t *f, nvmlValueType_t type, double x)
{
	f->nvmlReturn = NVML_SUCCESS;
	f->valueType = type;
	f->timestamp = (long long)epoch_us();
	f->value.ullVal = 0;
	switch (type) {
	case NVML_VALUE_TYPE_DOUBLE:
		f->value.dVal = x;
		break;
	case NVML_VALUE_TYPE_UNSIGNED_INT:
		f->value.uiVal = (unsigned)(unsigned long long)x;
		break;
	case NVML_VALUE_TYPE_SIGNED_INT:
		f->value.siVal = (int)x;
		break;
	default:
		f->value.ullVal = (unsigned long long)x;
	}
}

struct field { unsigned id; int branch; const char *key; nvmlValueType_t type; };

static const struct field fields[] = {
	{NVML_FI_DEV_MEMORY_TEMP, 450, "memtemp", NVML_VALUE_TYPE_UNSIGNED_INT},
	{NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 450, "energy", NVML_VALUE_TYPE_UNSIGNED_LONG_LONG},
	{NVML_FI_DEV_POWER_AVERAGE, 535, "power", NVML_VALUE_TYPE_UNSIGNED_INT},
	{NVML_FI_DEV_POWER_INSTANT, 535, "powerinst", NVML_VALUE_TYPE_UNSIGNED_INT},
	{NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, 535, "tlshut", NVML_VALUE_TYPE_SIGNED_INT},
	{NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, 535, "tlslow", NVML_VALUE_TYPE_SIGNED_INT},
	{NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT, 535, "tlmem", NVML_VALUE_TYPE_SIGNED_INT},
	{NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT, 535, "tlgpu", NVML_VALUE_TYPE_SIGNED_INT},
	{NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 555, "txbps", NVML_VALUE_TYPE_UNSIGNED_LONG_LONG},
	{NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 555, "rxbps", NVML_VALUE_TYPE_UNSIGNED_LONG_LONG},
	{NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 570, "recovery", NVML_VALUE_TYPE_UNSIGNED_INT},
};

/* ECC entries are left as they are when ECC is off, as was seen of the real library. */
static int ecc_field(const struct ent *e, nvmlFieldValue_t *f)
{
	const char *key = f->fieldId == NVML_FI_DEV_ECC_SBE_VOL_TOTAL ? "sbe" : f->fieldId == NVML_FI_DEV_ECC_DBE_VOL_TOTAL ? "dbe" : NULL;
	if (f->fieldId == NVML_FI_DEV_ECC_CURRENT) {
		if (!has(e, "ecc") || is(e, "ecc", "none"))
			f->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		else
			put(f, NVML_VALUE_TYPE_UNSIGNED_INT, is(e, "ecc", "on"));
		return 1;
	}
	if (!key)
		return 0;
	if (!has(e, "ecc") || is(e, "ecc", "none") || no_volatile_ecc(e))
		f->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
	else if (is(e, "ecc", "on"))
		put(f, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, num(e, key, 0));
	return 1;
}

/* Bytes since the start; the rate may change, so it is summed up from one reading to the next. */
static double pcie_count(const struct ent *e, const char *key)
{
	int rx = key[0] == 'r';
	double now = mono(), *sum = &pcie_bytes[e->gpu][rx], *last = &pcie_read[e->gpu][rx];
	*sum += num(e, key, 0) * (now - (*last > 0 ? *last : started));
	*last = now;
	return *sum;
}

static void one_field(const struct ent *e, nvmlFieldValue_t *f)
{
	if (ecc_field(e, f))
		return;
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		const struct field *k = &fields[i];
		if (k->id != f->fieldId)
			continue;
		int ga100 = k->id == NVML_FI_DEV_POWER_AVERAGE && arch(e) == 7;
		int part = f->scopeId != 0; /* of the module or the memory: only some boards tell */
		if (BRANCH < k->branch)
			f->nvmlReturn = NVML_ERROR_INVALID_ARGUMENT;
		else if (!has(e, k->key) || ga100 || part)
			f->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		else if (k->branch == 555)
			put(f, num(e, "pciewrap", 0) > 0 ? NVML_VALUE_TYPE_UNSIGNED_INT : k->type, pcie_count(e, k->key));
		else
			put(f, k->type, num(e, k->key, 0));
		return;
	}
	f->nvmlReturn = NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int count, nvmlFieldValue_t *values)
{
	ENTER(d);
	if (count <= 0 || !values)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < count; i++) {
		if (is_mig(e)) { /* a dummy that real drivers answer */
			put(&values[i], NVML_VALUE_TYPE_UNSIGNED_INT, 0);
			continue;
		}
		one_field(e, &values[i]);
		for (int r = 0; r < nrules; r++)
			if (rules[r].arg >= 0 && rules[r].code && rule_fits(&rules[r], 'f', __func__, e, (int)values[i].fieldId) && rule_fires(&rules[r]))
				values[i].nvmlReturn = (nvmlReturn_t)rules[r].code;
	}
	return NVML_SUCCESS;
}

/* ---- GPM ---- */

#if BRANCH >= 520
static int has_gpm(const struct ent *e)
{
	const char *v = get(root(e), "gpm");
	return v ? strcmp(v, "yes") == 0 : arch(e) >= 9;
}

/* Callers hold addresses in a range that nothing may touch: none is given twice, so a sample that is used
 * or freed after its end is always found out, and one that is looked into is a crash. */
static nvmlGpmSample_t new_token(void)
{
	enum { RANGE = 64 << 20, STEP = 16 };
	static char *range;
	static size_t next;
	if (!range)
		range = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range == MAP_FAILED || next >= RANGE)
		abort();
	nvmlGpmSample_t t = {(void *)(range + next)};
	next += STEP;
	return t;
}

static int place(nvmlGpmSample_t t) /* -1: not alive */
{
	for (int i = 0; i < SAMPLES; i++)
		if (samples[i] && samples[i]->token.handle == t.handle)
			return i;
	return -1;
}

/* The living sample that t names, or NULL and a complaint. */
static struct sample *sample(const char *func, nvmlGpmSample_t t)
{
	int i = place(t);
	if (i < 0) {
		violation(func, "not a living sample");
		return NULL;
	}
	if (samples[i]->session != session)
		violation(func, "a sample of an earlier session");
	return samples[i];
}

static void count_samples(int change)
{
	nsamples += change;
	*counter("samples") = (uint64_t)nsamples;
	if ((uint64_t)nsamples > *counter("samples_peak"))
		*counter("samples_peak") = (uint64_t)nsamples;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t d, nvmlGpmSupport_t *s)
{
	ENTER(d);
	if (s->version != NVML_GPM_SUPPORT_VERSION) {
		violation(__func__, "version %x", s->version);
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	}
	if (is_mig(e))
		gpm_used = 1; /* what the 535 report blames too */
	s->isSupportedDevice = (unsigned)has_gpm(e);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out)
{
	ENTER_SYSTEM();
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	int i = 0;
	while (i < SAMPLES && samples[i])
		i++;
	if (i == SAMPLES)
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	samples[i] = calloc(1, sizeof *samples[i]);
	samples[i]->session = session;
	*out = samples[i]->token = new_token();
	count_samples(1);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t t)
{
	ENTER_SYSTEM();
	if (!sample(__func__, t))
		return NVML_ERROR_INVALID_ARGUMENT;
	int i = place(t);
	free(samples[i]);
	samples[i] = NULL;
	count_samples(-1);
	return NVML_SUCCESS;
}

static double metric_of(const struct ent *e, int id)
{
	char key[20];
	snprintf(key, sizeof key, "gpm.%d", id);
	return num(e, key, METRIC_ERROR + NVML_ERROR_NOT_SUPPORTED);
}

/* The GPU instance's value is the mean of its compute instances'. */
static double mean_of(int n, int gi, int id)
{
	double sum = 0;
	int count = 0;
	for (int k = 0; k < SLOTS; k++) {
		const struct ent *m = &mig[n][k];
		if (!m->exists || m->gone || (int)num(m, "gi", -1) != gi)
			continue;
		double x = metric_of(m, id);
		if (!(fabs(x) < METRIC_ERROR) || x == WINDOW)
			return x;
		sum += x;
		count++;
	}
	return count ? sum / count : NAN;
}

/* Who is sampled: one compute instance, or all those of a GPU instance, told apart over time. */
static unsigned identity(const struct ent *e, int gi)
{
	unsigned sum = e->serial;
	for (int k = 0; gi >= 0 && k < SLOTS; k++) {
		const struct ent *m = &mig[e->gpu][k];
		if (m->exists && !m->gone && (int)num(m, "gi", -1) == gi)
			sum = sum * 31 + m->serial;
	}
	return sum;
}

static nvmlReturn_t take(const char *func, const struct ent *e, int gi, nvmlGpmSample_t t)
{
	struct sample *p = sample(func, t);
	if (!p || p->session != session)
		return NVML_ERROR_INVALID_ARGUMENT;
	p->gpu = e->gpu;
	p->slot = gi >= 0 ? -1 : e->slot;
	p->gi = gi;
	p->who = identity(e, gi);
	p->at = mono();
	for (int id = 0; id < METRICS; id++)
		p->value[id] = METRIC_ERROR + NVML_ERROR_NOT_SUPPORTED;
	for (int i = 0; i < e->keys; i++) { /* the compute instances of one GPU instance have the same metrics */
		int id = strncmp(e->key[i], "gpm.", 4) == 0 ? atoi(e->key[i] + 4) : 0;
		if (id > 0 && id < METRICS)
			p->value[id] = (float)(gi >= 0 ? mean_of(e->gpu, gi, id) : metric_of(e, id));
	}
	p->filled = 1;
	gpm_used = 1;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t d, nvmlGpmSample_t s)
{
	ENTER(d);
	if (!has_gpm(e))
		return NVML_ERROR_NOT_SUPPORTED;
	if (restricted(e))
		return NVML_ERROR_NO_PERMISSION;
	return take(__func__, e, -1, s);
}

#if BRANCH >= 525
nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t d, unsigned int gi, nvmlGpmSample_t s)
{
	ENTER(d);
	if (is_mig(e))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!has_gpm(e) || !mig_on(e))
		return NVML_ERROR_NOT_SUPPORTED;
	for (int k = 0; k < SLOTS; k++) {
		const struct ent *m = &mig[e->gpu][k];
		if (m->exists && !m->gone && (unsigned)num(m, "gi", -1) == gi)
			return granted(e, k) ? take(__func__, m, (int)gi, s) : NVML_ERROR_NO_PERMISSION;
	}
	return NVML_ERROR_INVALID_ARGUMENT; /* no such GPU instance, or one without compute instances */
}
#endif

static int same_source(const struct sample *a, const struct sample *b)
{
	return a->gpu == b->gpu && a->slot == b->slot && a->gi == b->gi && a->who == b->who && a->session == b->session;
}

static void one_metric(nvmlGpmMetric_t *m, const struct sample *a, const struct sample *b)
{
	double x = m->metricId < METRICS && m->metricId > 0 ? b->value[m->metricId] : METRIC_ERROR + NVML_ERROR_INVALID_ARGUMENT;
	m->nvmlReturn = NVML_SUCCESS;
	if (x >= METRIC_ERROR && !isinf(x)) {
		m->nvmlReturn = (nvmlReturn_t)(x - METRIC_ERROR);
		m->value = 4.9e-324; /* rubbish */
		return;
	}
	m->value = x == WINDOW ? (b->at - a->at) * 1000 / 20 : x;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *g)
{
	ENTER_SYSTEM();
	if (g->version != 1) {
		violation(__func__, "version %x", g->version);
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	}
	const struct sample *a = sample(__func__, g->sample1), *b = sample(__func__, g->sample2);
	if (!a || !b || !a->filled || !b->filled) {
		violation(__func__, "not two filled samples");
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	if (!same_source(a, b))
		violation(__func__, "samples of different instances");
	if (b->at < a->at)
		violation(__func__, "the newer sample comes first");
	else if (b->at - a->at < 0.1)
		violation(__func__, "samples only %.0f ms apart", (b->at - a->at) * 1000);
	if (g->numMetrics == 0 || g->numMetrics > 477) {
		violation(__func__, "%u metrics", g->numMetrics);
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	for (unsigned i = 0; i < g->numMetrics; i++)
		one_metric(&g->metrics[i], a, b);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmQueryIfStreamingEnabled(nvmlDevice_t d, unsigned int *state)
{
	ENTER(d);
	*state = 1;
	return has_gpm(e) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlGpmSetStreamingEnabled(nvmlDevice_t d, unsigned int state)
{
	ENTER(d);
	(void)state;
	violation(__func__, "a monitor must not switch streaming: it is global and zeroes every reader's buffer");
	return NVML_ERROR_NO_PERMISSION;
}
#endif

/* ---- events ---- */

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	ENTER_SYSTEM();
	static int last; /* not the place that was freed just now, so that its old handle is found out */
	for (int i = 0; i < SETS; i++) {
		last = (last + 1) % SETS;
		if (sets[last].alive)
			continue;
		sets[last] = (struct nvmlEventSet_st){.alive = 1, .session = session};
		set->handle = &sets[last];
		*counter("eventsets") = (uint64_t)++nsets;
		return NVML_SUCCESS;
	}
	return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

/* On older branches MIG changes can only be waited for while MIG is on. */
static unsigned long long event_types(const struct ent *e)
{
	return nvmlEventTypeXidCriticalError | (BRANCH >= 525 || mig_on(e) ? nvmlEventMigConfigChange : 0);
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, unsigned long long *types)
{
	ENTER(d);
	if (is_mig(e))
		return NVML_ERROR_NOT_SUPPORTED;
	*types = event_types(e);
	return NVML_SUCCESS;
}

static int living_set(const char *func, nvmlEventSet_t s)
{
	if (s.handle < sets || s.handle >= sets + SETS || !s.handle->alive) {
		violation(func, "not a living event set");
		return 0;
	}
	if (s.handle->session != session)
		violation(func, "an event set of an earlier session");
	return s.handle->session == session;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set)
{
	ENTER(d);
	if (!living_set(__func__, set))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (is_mig(e) || (types & ~event_types(e)))
		return NVML_ERROR_NOT_SUPPORTED;
	set.handle->types[e->gpu] |= types;
	int n = nwaiting; /* what finds no taker now lines up again */
	nwaiting = 0;
	for (int i = 0; i < n; i++)
		send_event(waiting[i]);
	return NVML_SUCCESS;
}

static int watches_lost_gpu(const struct nvmlEventSet_st *set)
{
	for (int n = 0; n < GPUS; n++)
		if (set->types[n] && num(&gpu[n], "lost", 0) == NVML_ERROR_GPU_IS_LOST)
			return 1;
	return 0;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout)
{
	ENTER_SYSTEM();
	if (!living_set(__func__, set))
		return NVML_ERROR_INVALID_ARGUMENT;
	struct nvmlEventSet_st *s = set.handle;
	if (s->queued == 0) {
		if (watches_lost_gpu(s))
			return NVML_ERROR_GPU_IS_LOST;
		nap(timeout / 1000.0);
		return NVML_ERROR_TIMEOUT;
	}
	const struct event *v = &s->queue[0];
	*data = (nvmlEventData_t){
		.device.handle = &gpu_handle[v->gpu],
		.eventType = v->type,
		.eventData = v->code,
		.gpuInstanceId = v->gi,
		.computeInstanceId = v->ci,
	};
	s->queued--;
	memmove(&s->queue[0], &s->queue[1], (size_t)s->queued * sizeof s->queue[0]);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	ENTER_SYSTEM();
	if (set.handle >= sets && set.handle < sets + SETS && set.handle->alive) {
		set.handle->alive = 0;
		*counter("eventsets") = (uint64_t)--nsets;
		return NVML_SUCCESS;
	}
	living_set(__func__, set); /* to complain */
	return NVML_ERROR_INVALID_ARGUMENT;
}
#endif
