"""emulator_prep.h5 and its three NetCDF files: what the public readers select, order and normalise.

The public reader of one sea-ice history file and the reader of an atmosphere/ocean pair are two versions of one module.
"""
import h5py
import netCDF4
import numpy as np
from common import load, put, quiet

HISTORY = (
    "ULAT ULON aice_h Tsfc_h sst_h sss_h sice_h hi_h hs_h umask Tair_h frzmlt_h strocnx_h strocny_h strairx_h "
    "strairy_h Qref_h flwdn_h fswdn_h uocn_h vocn_h uatm_h vatm_h"
)
LAYOUTS = dict(
    history="sst,sss,tair,tsfc,hi,hs,sice,uocn,vocn,uatm,vatm,qref,flwdn,fswdn",
    pair="sst,sss,tair,hi,hs,qref,uatm,vatm,tsfc",
)
FILES = dict(history=["emulator_prep_cice.nc"], pair=["emulator_prep_atm.nc", "emulator_prep_ocn.nc"])
SELECTIONS = [("sea_ice", 0.0), ("sea_ice", 0.1), ("ocean", 0.1), ("both", 0.0), ("both", 0.1)]


def write_history(path, rng, shape):
    """A curvilinear grid with land as fill values, in packed single precision with an unlimited time."""
    nj, ni = shape
    normal = lambda mean, std: mean + rng.normal(0, std, shape)
    lat = np.linspace(-78, 84, nj)[:, None] + normal(0, 0.2)
    lon = np.linspace(0, 355, ni)[None] + normal(0, 0.2)
    water = (rng.random(shape) > 0.25).astype(float)
    sst = 28 * np.cos(np.deg2rad(lat)) ** 2 - 1.8 + normal(0, 0.5)
    ice = np.clip(0.9 - 0.6 * (sst + 1.8) + normal(0, 0.1), 0, 1)
    field = dict(ULAT=lat, ULON=lon, umask=water, sst_h=sst, aice_h=ice)
    field.update(sss_h=normal(33, 1), Tair_h=sst + normal(-4, 3), Tsfc_h=sst + normal(-3, 2))
    field.update(hi_h=ice * rng.gamma(2.0, 0.8, shape), hs_h=ice * rng.gamma(1.5, 0.1, shape))
    field.update(sice_h=np.where(ice > 0, normal(5, 1), 0.0), frzmlt_h=normal(0, 10), Qref_h=np.exp(normal(-6, 1)))
    field.update(flwdn_h=normal(250, 40), fswdn_h=np.abs(normal(100, 80)))
    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
        for name, size in (("time", None), ("nj", nj), ("ni", ni)):
            file.createDimension(name, size)
        file.title = "synthetic sea-ice history sample"
        names = HISTORY.split()
        for name in names:
            if name not in field:
                field[name] = normal(0, 0.3 if "ocn" in name or "str" in name else 6)
        for name in names:
            dims = ("time", "nj", "ni") if name.endswith("_h") else ("nj", "ni")
            packed = dict(zlib=len(dims) == 3, complevel=4, shuffle=True, fill_value=np.float32(1e30))
            values = np.ma.array(field[name], mask=(water == 0) & (len(dims) == 3))
            file.createVariable(name, "f4", dims, **packed)[:] = values[None] if len(dims) == 3 else values


def write_fields(path, shape, levels, fields):
    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
        for name, size in zip(("latitude", "longitude", "level"), (*shape, levels)):
            file.createDimension(name, size)
        for name, last, size in zip(("latitude", "longitude"), ((-80, 80), (0, 350)), shape):
            file.createVariable(name, "f8", (name,))[:] = np.linspace(*last, size)
        for name, values in fields.items():
            file.createVariable(name, "f8", ("latitude", "longitude", "level"))[:] = values


def write_pair(atmosphere, ocean, rng, shape):
    """Two files on one regular grid, with values that the reader must reject."""
    normal = lambda levels, mean, std: mean + std * rng.normal(0, 1, (*shape, levels))
    air = dict(air_temperature=normal(3, 265, 15), eastward_wind=normal(3, 0, 7), northward_wind=normal(3, 0, 7))
    air["skin_temperature_at_surface"] = normal(3, 268, 12)
    air["water_vapor_mixing_ratio_wrt_moist_air"] = normal(3, 5e-3, 2e-3)
    air["air_temperature"][0, 0, 2] = 150.0  # outside 183.15 .. 333.15 K
    air["air_temperature"][1, 1, 2] = 400.0
    write_fields(atmosphere, shape, 3, air)
    thickness = np.abs(rng.normal(3, 2, (*shape, 2)))
    thickness[2, :4, 0] = 0.0  # outside 0 < thickness <= 500
    thickness[3, :2, 0] = 900.0
    ice = np.clip(rng.normal(0.4, 0.5, (*shape, 2)), 0, 1)
    sea = dict(sea_water_cell_thickness=thickness, sea_ice_area_fraction=ice)
    sea["sea_water_potential_temperature"] = rng.normal(2, 5, ice.shape)
    sea["sea_water_salinity"] = rng.normal(34, 1, ice.shape)
    sea["sea_ice_thickness"] = ice * rng.gamma(2, 0.7, ice.shape)
    sea["sea_ice_snow_thickness"] = ice * rng.gamma(2, 0.05, ice.shape)
    write_fields(ocean, shape, 2, sea)


def prepare(reader, layout, files, mode, low, most):
    """Inputs, targets, longitudes, latitudes and moments of inputs and targets, as the public reader returns them."""
    variables = dict(input_variables=LAYOUTS[layout].split(","), output_variables=["aice"])
    settings = dict(domain=dict(mask_mode=mode, min_ice_concentration=low), variables=variables, model={})
    with quiet():
        preparer = reader.IceDataPreparer(settings)
        read = preparer.read_netcdf_data if layout == "history" else preparer.read_netcdf_data_pair
        inputs, targets, lon, lat = preparer.filter_data(read(*map(str, files)), most)
        moments = preparer.compute_normalization_stats(inputs) + preparer.compute_normalization_stats(targets)
    names = ("inputs", "targets", "lon", "lat", "input_mean", "input_std", "output_mean", "output_std")
    return dict(zip(names, (inputs, targets, lon, lat, *moments)))


def write(public, out, shape=(23, 17), seed=5):
    rng = np.random.default_rng(seed)
    files = {layout: [out / name for name in names] for layout, names in FILES.items()}
    write_history(*files["history"], rng, shape)
    write_pair(*files["pair"], rng, shape)
    with h5py.File(out / "emulator_prep.h5", "w") as f:
        f.attrs["system"] = "emulator_prep"
        for layout, checkout in (("history", "aibalance-history"), ("pair", "aibalance")):
            reader = load(public / checkout, "ufsemulator.data")
            for mode, low in SELECTIONS:
                for most in (400000, 37):
                    name = f"{layout}/{mode}_min{low:g}_max{most}"
                    put(f, name, prepare(reader, layout, files[layout], mode, low, most), np.float32)
                    f[name].attrs.update(mask_mode=mode, min_ice_concentration=low, max_patterns=most)
                    f[name].attrs.update(input_variables=LAYOUTS[layout], output_variables="aice")
                    f[name].attrs["files"] = ",".join(FILES[layout])
