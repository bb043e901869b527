"""hrm_prep.h5: Sudoku, mazes and ARC grids as the public preparation converts them, and the batches of its sampler.

The Sudoku puzzles are read from the stored file: 14 rows of a data set with the columns of sapientinc/sudoku-extreme.
"""
import json
import tempfile
from pathlib import Path

import numpy as np
from common import load, put, stored, replace_module

FIELDS = ("inputs", "labels", "puzzle_identifiers", "puzzle_indices", "group_indices")


def write_dataset(folder, split, sets, **sizes):
    path = Path(folder) / split
    path.mkdir(parents=True)
    unused = dict(seq_len=1, total_groups=1, total_puzzles=1, mean_puzzle_examples=1)
    meta = dict(sizes, sets=list(sets), pad_id=0, ignore_label_id=0, blank_identifier_id=0, **unused)
    for name, arrays in sets.items():
        for key, value in arrays.items():
            np.save(path / f"{name}__{key}.npy", value)
    (path / "dataset.json").write_text(json.dumps(meta))


def dataset(module, folder, split, batch, rank=0, world=1, seed=0, epochs=1):
    several = "dataset_paths" in module.PuzzleDatasetConfig.model_fields  # TRM's reader takes a list
    config = module.PuzzleDatasetConfig(
        seed=seed, global_batch_size=batch, test_set_mode=split == "test", epochs_per_iter=epochs, rank=rank,
        num_replicas=world, **(dict(dataset_paths=[str(folder)]) if several else dict(dataset_path=str(folder))),
    )
    return module.PuzzleDataset(config, split=split)


class Record:
    """Keeps what numpy.random draws while it is active."""

    def __init__(self, *names):
        self.names, self.drawn = names, []

    def __enter__(self):
        self.real = {name: getattr(np.random, name) for name in self.names}
        for name, draw in self.real.items():
            setattr(np.random, name, lambda *a, draw=draw, **k: self.drawn.append(draw(*a, **k)) or self.drawn[-1])
        return self.drawn

    def __exit__(self, *_):
        for name, draw in self.real.items():
            setattr(np.random, name, draw)


def converted(f, group, folder):
    """What a public conversion wrote."""
    for split in ("train", "test"):
        f[group].attrs[f"{split}_dataset_json"] = (folder / split / "dataset.json").read_text()
        for key in FIELDS:
            value = np.load(folder / split / f"all__{key}.npy")
            put(f, f"{group}/{split}/{key}", value, np.int32)
            if group == "sudoku":
                f[f"{group}/{split}/{key}"].attrs["upstream_dtype"] = str(value.dtype)


def write_sudoku(f, module, folder, puzzles=5, variants=3):
    group = f.create_group("sudoku")
    with stored("hrm_prep.h5") as reference:
        texts = {split: reference["sudoku"].attrs[f"{split}_csv"] for split in ("train", "test")}
    for split, text in texts.items():
        (folder / f"{split}.csv").write_text(text)
        group.attrs[f"{split}_csv"] = text
    config = module.DataProcessConfig(
        source_repo=str(folder), output_dir=str(folder / "sudoku"), subsample_size=puzzles, num_aug=variants
    )
    group.attrs.update(subsample_size=puzzles, num_aug=variants)
    with Record("permutation", "rand", "choice") as drawn:
        for split in texts:
            module.convert_subset(split, config)
    converted(f, "sudoku", folder / "sudoku")
    put(group, "subsample_rows", drawn[0], np.int32)
    draws, found = iter(drawn[1:]), dict(digit_map=[], transpose=[], row_perm=[], col_perm=[])
    for _ in range(puzzles * variants):
        found["digit_map"].append([0, *next(draws)])
        found["transpose"].append(next(draws) < 0.5)
        for axis in ("row_perm", "col_perm"):
            found[axis].append(np.concatenate([3 * band + next(draws) for band in next(draws)]))
    put(group, "aug", found, np.int32)


def write_maze(f, module, folder, rng, n=6):
    rows = ["source,question,answer,rating"]
    for i in range(3):
        question = np.where(rng.random((n, n)) < 0.3, "#", " ")
        question[0, 0], question[-1, -1] = "S", "G"
        answer, free = question.copy(), question == " "
        answer[free] = np.where(rng.random(free.sum()) < 0.4, "o", " ")
        rows.append(f"gen,{''.join(question.ravel())},{''.join(answer.ravel())},{i}")
    text = "\n".join(rows) + "\n"
    config = module.DataProcessConfig(source_repo=str(folder), output_dir=str(folder / "maze"), aug=True)
    for split in ("train", "test"):
        (folder / f"{split}.csv").write_text(text)
        module.convert_subset(split, config)
    f.create_group("maze").attrs["csv"] = text
    converted(f, "maze", folder / "maze")


def write_arc(f, module, rng):
    """Grids as rows of 900 tokens, at given offsets or without a shift."""
    cases = [((3, 5), (4, 2), (3, 5)), ((30, 30), (30, 30), (0, 0)), ((4, 30), (7, 3), (23, 0)), ((5, 6), (5, 6), None)]
    randint = np.random.randint
    for i, (size, answer_size, offset) in enumerate(cases):
        grids = [rng.integers(0, 10, shape).astype(np.uint8) for shape in (size, answer_size)]
        left = iter(offset or ())
        np.random.randint = lambda *_: next(left)
        tokens = module.np_grid_to_seq_translational_augment(*grids, do_translation=offset is not None)
        np.random.randint = randint
        put(f, f"arc/{i}", dict(input=grids[0], output=grids[1]))
        put(f, f"arc/{i}", dict(input_tokens=tokens[0], output_tokens=tokens[1]), np.int32)
        f[f"arc/{i}"].attrs["pad_r"], f[f"arc/{i}"].attrs["pad_c"] = offset or (0, 0)


def write_sampler(f, module, folder, rng, seed, batch=6, epochs=5):
    """Batches of the public sampler for 1, 2 and 3 ranks, from groups of unequal size; its draws in order."""
    sizes = rng.integers(1, 5, 17)
    puzzles = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    groups = np.array([0, 3, 4, 8, 9, 13, 17], np.int32)
    n, length = int(puzzles[-1]), 4
    cells = np.arange(n * length).reshape(n, length)
    data = dict(zip(FIELDS, (cells % 9 + 1, cells % 7, rng.permutation(17) + 1, puzzles, groups)))
    for split in ("train", "test"):
        write_dataset(folder, split, {"all": data}, vocab_size=12, num_puzzle_identifiers=18)
    put(f, "sampler/data", data, np.int32)
    f["sampler"].attrs.update(global_batch_size=batch, epochs_per_iter=epochs, seed=seed)
    columns = lambda batches: {key: np.stack([b[key].numpy() for _, b, _ in batches]) for key in FIELDS[:3]}

    class Recording(np.random.Generator):
        def permutation(self, *arguments):
            orders.append(super().permutation(*arguments))
            return orders[-1]

        def integers(self, *arguments):
            picks.append(super().integers(*arguments))
            return picks[-1]

    generator, np.random.Generator = np.random.Generator, Recording
    for world, rank in ((world, rank) for world in (1, 2, 3) for rank in range(world)):
        np.random.seed(seed + 5)
        train = dataset(module, folder, "train", batch, rank, world, seed, epochs)
        for i in (1, 2):
            orders, picks = [], []
            with Record("choice") as choices:
                put(f, f"sampler/train/world{world}/rank{rank}/iter{i}", columns(list(train)))
            if world == 1:
                draws = dict(group_order=np.concatenate(orders), puzzle_pick=picks, choice_len=list(map(len, choices)))
                put(f, f"sampler/draws/iter{i}", dict(draws, choice_concat=np.concatenate(choices)), np.int32)
        test = list(dataset(module, folder, "test", batch, rank, world))
        put(f, f"sampler/test/world{world}/rank{rank}", columns(test))
        put(f, f"sampler/test/world{world}/rank{rank}/effective_batch", [n for *_, n in test], np.int32)
    np.random.Generator = generator


def write(hrm, f, seed=9):
    replace_module("argdantic", ArgParser=lambda: type("Parser", (), dict(command=lambda self, **_: lambda function: function))())
    replace_module("huggingface_hub", hf_hub_download=lambda folder, name, **_: f"{folder}/{name}")
    replace_module("tqdm", tqdm=lambda items, **_: items)
    names = ("common", "build_sudoku_dataset", "build_maze_dataset", "build_arc_dataset")
    common, sudoku, maze, arc = load(hrm.public / "HRM/dataset", *names)
    np.random.seed(seed)
    rng = np.random.default_rng(seed + 1)
    with tempfile.TemporaryDirectory() as folder:
        write_sudoku(f, sudoku, Path(folder))
        grid = np.arange(15).reshape(3, 5)
        transforms = {str(i): common.dihedral_transform(grid, i) for i in range(8)}
        put(f, "dihedral", dict(transforms, input=grid, inverse=common.DIHEDRAL_INVERSE), np.int32)
        write_maze(f, maze, Path(folder), rng)
        write_arc(f, arc, rng)
        write_sampler(f, hrm.dataset, Path(folder) / "sampler", rng, seed)
    f.attrs["seed"] = seed
